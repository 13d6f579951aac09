from django.apps import AppConfig


class RoutingConfig(AppConfig):
    name = "controlplane.routing"
    label = "routing"

    def ready(self) -> None:
        from controlplane.core.changes import register_section
        from controlplane.fleet.services import versions
        from controlplane.routing.kept_versions import led_by_others, pinned
        from controlplane.routing.new_versions import not_allowed, unrouted
        from controlplane.routing.sections import SECTIONS

        versions.pins[:] = [pinned]
        versions.other_routes[:] = [led_by_others]
        versions.doubts[:] = [unrouted, not_allowed]
        for section in SECTIONS:
            register_section(section)
