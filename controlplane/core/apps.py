from django.apps import AppConfig


class CoreConfig(AppConfig):
    name = "controlplane.core"
    label = "core"

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_in

        from controlplane.core import gauges, sessions, token_gauges

        user_logged_in.connect(sessions.begin, dispatch_uid="controlplane.core.sessions.begin")
        gauges.register(token_gauges.families)
