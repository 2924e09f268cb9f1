from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class BatchesConfig(AppConfig):
    name = "pagoda.batches"
    label = "batches"
    verbose_name = _("Batches")

    def ready(self) -> None:
        from pagoda.api.application import body_limits, gates
        from pagoda.api.authentication import scoped
        from pagoda.api.v1 import api
        from pagoda.batches import batch_routes, erasure, file_routes, results, uploads, work
        from pagoda.generations.signals import generation_settled

        for routes in (file_routes, batch_routes):
            api.add_router("", routes.router)
        body_limits["/v1/files"] = uploads.most_bytes_of_a_body
        gates["/v1/files"] = scoped("batch")
        generation_settled.connect(results.write_with_settlement)
        erasure.listen()
        work.listen()
