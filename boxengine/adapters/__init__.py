"""Implementations of the ports, one module or package for each library or server.

- **Items and jobs:** ``sql`` (all that is in a database), ``payload`` (what ``__payload__`` of a model may be), ``contracts``
  (typed arguments of long jobs, as msgpack).
- **Coordination:** ``redis``. It writes ``worker_entry`` (what a worker says of itself), as ``sql`` does. ``announcer`` sends
  wake-ups beside the application's work.
- **Transports:** ``kafka`` (which also receives), ``http``, ``redis_stream``, ``file``, ``log``; ``builtin`` lists their short
  names. Several use ``serializers`` (from a payload to bytes), ``cloudevents``, ``template`` (names worked out per item).
- **Telemetry:** ``telemetry`` (logs, metrics, traces).
- **Processes:** ``processes`` (children in which handlers of long jobs run), ``forked`` (what users' code forks off ours),
  ``temporary`` (keeps temporary folders from being cleared).
- **The audit:** ``matching`` (brings rows and messages together), on disk by means of ``scratch``.
- **The clock:** ``system``.
- **Tests:** ``memory`` (twins of the ports, without a server).
"""
