"""What may hurt of webhooks: certificates of ours that nobody has renewed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from boxengine.adapters.http.client_certificate import ClientCertificate, Unusable, validity_of
from boxengine.domain.box import Box
from boxengine.ports.people.checkup import Remark

AREA = "http"


class CertificateCheckup:
    """``Checkup`` of the certificates that transports show to receivers."""

    def __init__(self, certificates: Mapping[ClientCertificate, str], *, now: datetime) -> None:
        """Args:
        certificates: each with a box that uses it.
        """
        self._certificates = certificates
        self._now = now

    def remarks(self, boxes: Sequence[Box]) -> list[Remark]:  # noqa: ARG002 - the certificates know theirs
        return [self._of(certificate, box) for certificate, box in self._certificates.items()]

    def _of(self, certificate: ClientCertificate, box: str) -> Remark:
        try:
            validity = validity_of(certificate)
        except Unusable as error:
            advice = (
                "Correct it: no worker starts with it. If only the workers have the file, run doctor where they run."
            )
            return Remark(area=AREA, box=box, text=f"{box}: {error}.", advice=advice)
        ended = validity.end <= self._now
        text = (
            f"The certificate in cert_file {certificate.cert_file!r} of {box} {'expired' if ended else 'expires'} on "
            f"{validity.end:%Y-%m-%d at %H:%M} UTC."
        )
        if ended:
            advice = (
                "Renew it: until then nothing is sent. Workers that run read the new file with their next connection."
            )
            return Remark(area=AREA, box=box, text=text, advice=advice)
        if validity.is_late(self._now):
            advice = (
                "Renew it, or find out why it was not renewed. Workers read the new file with their next connection."
            )
            return Remark(area=AREA, box=box, text=text, advice=advice)
        return Remark(area=AREA, box=box, text=text)
