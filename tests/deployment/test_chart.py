"""The Helm chart and the plain manifests: Helm and the schemas of Kubernetes accept them, and both say the same."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from boxengine.cli.kits import KITS, content
from boxengine.settings.schema import Settings
from tests.conftest import ServerLookup
from tests.deployment.test_kits import boxengine

HERE = Path(__file__).parent
SCALED_OBJECT = HERE / "schemas" / "scaledobject.json"
VERSIONS = ("1.27", "1.31", "1.37")
"""Of Kubernetes: the oldest that the chart names, the newest with schemas, and one between."""
CONFIGURATION = f"{content('fastapi/outbox.yml')}probes: {{port: 6001}}\nmetrics: {{port: 6002}}\n"
SETS = {
    "as it is": {},
    "with a configuration": {"configuration": CONFIGURATION},
    "with a consumer": {"configuration": CONFIGURATION, "consumer": {"enabled": True}},
    "scaled": {"scaling": {"enabled": True}},
    "everything": {
        "configuration": CONFIGURATION,
        "consumer": {"enabled": True},
        "imagePullSecrets": [{"name": "registry"}],
        "migration": {"secret": "owner"},
        "scaling": {"enabled": True, "boxes": "order_.*"},
        "secretFiles": [{"secret": "kafka-ca", "path": "/etc/kafka"}],
        "pod": {"nodeSelector": {"disk": "ssd"}, "serviceAccountName": "shop"},
        "podAnnotations": {"sidecar.istio.io/inject": "false"},
    },
    "nothing that can be left out": {"migration": {"enabled": False}, "console": {"enabled": False}},
    "mistyped": {"worker": {"replica": 3}},
}

Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With both kits in it."""
    made = tmp_path_factory.mktemp("cluster")
    boxengine(made, "init", "--with", "helm", "--with", "kubernetes")
    return made


@pytest.fixture(scope="module")
def answer(folder: Path, server_lookup: ServerLookup) -> dict[str, Any]:
    """What Helm says of the chart."""
    program = [server_lookup("helm").address, str(HERE / "rendering.py"), str(folder / "chart")]
    asked = "".join(json.dumps(values) + "\n" for values in SETS.values())
    done = subprocess.run(program, input=asked, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.fixture(scope="module")
def rendered(answer: dict[str, Any]) -> Callable[[str], Objects]:
    """The objects of a set of values."""
    texts = dict(zip(SETS, answer["rendered"], strict=True))

    def objects(name: str) -> Objects:
        files = (text for file, text in texts[name].items() if file.endswith(".yaml"))
        return [found for text in files for found in yaml.safe_load_all(text) if found]

    return objects


@pytest.fixture
def plain(folder: Path) -> Objects:
    """The manifests."""
    return [
        found
        for file in sorted((folder / "kubernetes").iterdir())
        for found in yaml.safe_load_all(file.read_text())
        if found
    ]


def named(objects: Objects, kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, f"boxengine{name}"))
    return found


def containers(objects: Objects) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each with its pod."""
    for each in objects:
        if each["kind"] in ("Deployment", "Job"):
            pod = each["spec"]["template"]["spec"]
            for container in [*pod.get("initContainers", ()), *pod["containers"]]:
                yield pod, container


def test_helm_finds_nothing_to_complain_about(answer: dict[str, Any]) -> None:
    assert answer["linted"]["errors"] == []
    assert [said["error"] for said in answer["linted"]["messages"]] == ["icon is recommended"]


def test_a_value_that_the_chart_does_not_know_is_refused(answer: dict[str, Any]) -> None:
    assert "'/worker': additional properties 'replica' not allowed" in answer["rendered"][-1]["error"]
    assert [each for each in answer["rendered"][:-1] if "error" in each] == []


def test_every_rendered_object_is_what_its_schema_asks_for(
    rendered: Callable[[str], Objects], server_lookup: ServerLookup
) -> None:
    server_lookup("kubernetes-schemas")
    _validate([each for name in [*SETS][:-1] for each in rendered(name)])


def test_every_manifest_is_what_its_schema_asks_for(plain: Objects, server_lookup: ServerLookup) -> None:
    server_lookup("kubernetes-schemas")
    _validate(plain)
    worker, scaled = named(plain, "Deployment", "-worker"), named(plain, "ScaledObject", "-worker")
    worker["spec"]["template"]["spec"]["containers"][0]["readinessProb"] = {}
    scaled["spec"]["maxReplicas"] = 8
    for wrong, misspelt in ((worker, "readinessProb"), (scaled, "maxReplicas")):
        with pytest.raises(jsonschema.ValidationError, match=misspelt):
            _validate([wrong])


def test_the_plain_manifests_are_what_the_chart_makes(rendered: Callable[[str], Objects], plain: Objects) -> None:
    of_chart = [
        *rendered("with a consumer"),
        *(each for each in rendered("scaled") if each["kind"] == "ScaledObject"),
    ]
    wanted = {_key(each): _bare(each) for each in of_chart if each["kind"] != "ConfigMap"}
    found = {_key(each): _bare(each) for each in plain}
    assert found == wanted


def test_pods_run_as_nobody_in_particular_and_write_nowhere(plain: Objects) -> None:
    found = list(containers(plain))
    assert [container["name"] for _, container in found] == ["console", "consumer", "db-create", "db-upgrade", "worker"]
    for pod, container in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001  # as in the Dockerfile
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["envFrom"] == [{"secretRef": {"name": "boxengine"}}]
        assert [variable["name"] for variable in container["env"]] == ["BOXENGINE_CONFIG"]  # no secret stands here


def test_a_worker_is_asked_at_its_ports_and_has_time_to_stop(plain: Objects) -> None:
    settings = Settings()
    spec = named(plain, "Deployment", "-worker")["spec"]["template"]["spec"]
    (worker,) = spec["containers"]
    assert spec["terminationGracePeriodSeconds"] > settings.processor.general_timeout.total_seconds()
    ports = {port["name"]: port["containerPort"] for port in worker["ports"]}
    assert ports == {"probes": settings.probes.port, "metrics": settings.metrics.port}
    asked = {name: probe["httpGet"]["path"] for name, probe in worker.items() if name.endswith("Probe")}
    assert asked == {
        "startupProbe": "/liveness/outbox",
        "livenessProbe": "/liveness/outbox",
        "readinessProbe": "/readiness/outbox",
    }


def test_a_node_can_be_drained_while_no_worker_is_ready(plain: Objects) -> None:
    """They are not ready while a receiver is down, which no worker that stays can change."""
    budget = named(plain, "PodDisruptionBudget", "-worker")["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_every_pod_goes_where_the_values_say_and_has_the_files_of_secrets(
    rendered: Callable[[str], Objects],
) -> None:
    objects = rendered("everything")
    for pod, container in containers(objects):
        assert (pod["nodeSelector"], pod["serviceAccountName"]) == ({"disk": "ssd"}, "shop")
        files = {"secretName": "kafka-ca", "defaultMode": 0o440}  # libpq refuses a key that all may read
        (name,) = (each["name"] for each in pod["volumes"] if each.get("secret") == files)
        assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
        assert {"name": name, "mountPath": "/etc/kafka", "readOnly": True} in container["volumeMounts"]
    pods = [each["spec"]["template"] for each in objects if each["kind"] in ("Deployment", "Job")]
    assert len(pods) == 4
    assert {each["metadata"]["annotations"]["sidecar.istio.io/inject"] for each in pods} == {"false"}


def test_selectors_find_their_pods(plain: Objects) -> None:
    labels = {
        part: named(plain, "Deployment", f"-{part}")["spec"]["template"]["metadata"]["labels"]
        for part in ("worker", "console")
    }
    assert named(plain, "Deployment", "-worker")["spec"]["selector"]["matchLabels"] == labels["worker"]
    assert named(plain, "PodDisruptionBudget", "-worker")["spec"]["selector"]["matchLabels"] == labels["worker"]
    assert named(plain, "Service", "-console")["spec"]["selector"] == labels["console"]
    assert named(plain, "ScaledObject", "-worker")["spec"]["scaleTargetRef"]["name"] == "boxengine-worker"


def test_the_configuration_that_a_pod_reads_is_valid(rendered: Callable[[str], Objects], tmp_path: Path) -> None:
    objects = rendered("with a configuration")
    assert named(objects, "ConfigMap", "")["data"] == named(objects, "ConfigMap", "-migration")["data"]
    for name, text in named(objects, "ConfigMap", "")["data"].items():
        (tmp_path / name).write_text(text)
    (tmp_path / "shop.py").write_text(content("fastapi/shop.py"))
    assert (tmp_path / "outbox.yml").read_text().strip() == CONFIGURATION.strip()
    (variable,) = named(objects, "Deployment", "-worker")["spec"]["template"]["spec"]["containers"][0]["env"]
    files = variable["value"].replace("/etc/boxengine/", "")
    environ = {"BOXENGINE_CONFIG": files, "DATABASE_URL": "postgresql://db/shop", "BOXENGINE_CONSOLE_TOKEN": "t" * 40}
    shown = {
        line["key"]: line["value"]
        for line in json.loads(boxengine(tmp_path, "config", "show", "--json", environ=environ))
    }
    assert (shown["metrics.enabled"], shown["console.operate_token"]) == (True, "***")
    (worker,) = named(objects, "Deployment", "-worker")["spec"]["template"]["spec"]["containers"]
    for port in worker["ports"]:
        assert shown[f"{port['name']}.port"] == port["containerPort"]


def test_the_overlay_of_the_chart_is_that_of_the_manifests(folder: Path) -> None:
    values = yaml.safe_load((folder / "chart" / "values.yaml").read_text())
    assert values["overlay"] == yaml.safe_load((folder / "deploy.yml").read_text())


def test_a_changed_configuration_replaces_the_pods(rendered: Callable[[str], Objects]) -> None:
    sums = {
        named(rendered(name), "Deployment", "-worker")["spec"]["template"]["metadata"]["annotations"][
            "checksum/configuration"
        ]
        for name in ("as it is", "with a configuration")
    }
    assert len(sums) == 2


def test_tables_are_made_before_an_installation_and_an_upgrade_by_whoever_may(
    rendered: Callable[[str], Objects],
) -> None:
    objects = rendered("everything")
    job, files = named(objects, "Job", "-migration"), named(objects, "ConfigMap", "-migration")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert files["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert int(files["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0  # before the Job
    ran = [container["args"] for _, container in containers([job])]
    assert ran == [["db", "create"], ["db", "upgrade"]]
    assert {container["envFrom"][0]["secretRef"]["name"] for _, container in containers([job])} == {"owner"}
    assert "Job" not in {each["kind"] for each in rendered("nothing that can be left out")}


def test_keda_scales_by_a_metric_that_workers_have(rendered: Callable[[str], Objects]) -> None:
    (trigger,) = named(rendered("everything"), "ScaledObject", "-worker")["spec"]["triggers"]
    metric, boxes = re.fullmatch(r'max\((\w+)\{name=~"(.*)"\}\)', trigger["metadata"]["query"]).groups()  # type: ignore[union-attr]
    assert f"`{metric}`" in (HERE.parents[1] / "docs" / "metrics.md").read_text()
    assert boxes == "order_.*"
    assert "replicas" not in named(rendered("everything"), "Deployment", "-worker")["spec"]
    assert named(rendered("as it is"), "Deployment", "-worker")["spec"]["replicas"] == 2


def test_every_file_of_the_chart_is_written() -> None:
    kits = Path(content.__code__.co_filename).parents[1] / "kits"
    for kit, folder in (("helm", "helm"), ("kubernetes", "kubernetes"), ("fastapi", "fastapi"), ("django", "django")):
        there = {
            path.relative_to(kits).as_posix()
            for path in (kits / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert there <= set(KITS[kit].values())


def _validate(objects: Objects) -> None:
    import kubernetes_validate

    scaled = _closed(json.loads(SCALED_OBJECT.read_text()))
    for each in {json.dumps(each, sort_keys=True): each for each in objects}.values():
        if each["apiVersion"] == "keda.sh/v1alpha1":
            jsonschema.validate(each, scaled)
        else:
            for version in VERSIONS:
                kubernetes_validate.validate(each, version, strict=True)


def _closed(schema: Any) -> Any:
    """KEDA's schema drops what it does not know; here that is a mistake."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if "properties" in closed and closed.get("type") == "object" and "metadata" not in closed["properties"]:
        closed.setdefault("additionalProperties", False)
    return closed


def _key(each: dict[str, Any]) -> tuple[str, str]:
    return each["kind"], each["metadata"]["name"]


def _bare(each: dict[str, Any]) -> Any:
    """Without what only Helm needs: its labels and hooks, the checksum, and the migration's own ConfigMap."""
    text = json.dumps(each).replace(
        '"configMap": {"name": "boxengine-migration"}', '"configMap": {"name": "boxengine"}'
    )
    bare = json.loads(text)
    for metadata in (bare["metadata"], bare["spec"].get("template", {}).get("metadata", {})):
        for kind in ("labels", "annotations"):
            kept = {
                key: value
                for key, value in metadata.get(kind, {}).items()
                if not key.startswith(("helm.sh/", "checksum/"))
                and key not in ("app.kubernetes.io/managed-by", "app.kubernetes.io/version")
            }
            metadata.pop(kind, None)
            if kept:
                metadata[kind] = kept
    return bare
