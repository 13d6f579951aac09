"""A Dash server backend whose routes are Django views (docs/decisions/0005-dash-in-django.md)."""

from __future__ import annotations

import gzip
import mimetypes
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from dash import Dash, _validate
from dash.backends.base_server import BaseDashServer
from dash.fingerprint import check_fingerprint
from django.http import HttpResponse, JsonResponse
from django.utils.cache import patch_vary_headers

from dashboards.backend.adapters import DjangoRequestAdapter, DjangoResponseAdapter, current_request, has_request
from dashboards.backend.routes import BadCall, DashRoutes

# A fingerprint is a part of the address, and only people who have logged in get the file.
_FOREVER = "private, max-age=31536000, immutable"


class DjangoDashServer(BaseDashServer[DashRoutes]):
    """Takes Dash's registrations. What Django does itself (index page, static files, errors) it passes over."""

    server_type = "django"
    request_adapter = DjangoRequestAdapter
    response_adapter = DjangoResponseAdapter

    @staticmethod
    def create_app(name: str = "__main__", config: Mapping[str, Any] | None = None) -> DashRoutes:
        return DashRoutes()

    def add_url_rule(
        self,
        rule: str,
        view_func: Callable[..., Any],
        endpoint: str | None = None,
        methods: Sequence[str] | None = None,
    ) -> None:
        self.server.add(rule, view_func, methods or ("GET",))

    def before_request(self, func: Callable[[], None]) -> None:
        self.server.prepare_by(func)

    def has_request_context(self) -> bool:
        return has_request()

    def make_response(
        self, data: Any, mimetype: str | None = None, content_type: str | None = None, status: int | None = None
    ) -> HttpResponse:
        return HttpResponse(data, content_type=content_type or mimetype, status=status or 200)

    def jsonify(self, obj: Any) -> JsonResponse:
        return JsonResponse(obj, safe=False)

    def setup_component_suites(self, dash_app: Any) -> str:
        def suite(package_name: str, fingerprinted_path: str) -> HttpResponse:
            path, is_fingerprinted = check_fingerprint(fingerprinted_path)  # type: ignore[no-untyped-call]
            _validate.validate_js_path(dash_app.registered_paths, package_name, path)  # type: ignore[no-untyped-call]
            return _file(package_name, path, kept=is_fingerprinted)

        dash_app._add_url("_dash-component-suites/<string:package_name>/<path:fingerprinted_path>", suite)
        return "_dash-component-suites"

    def serve_callback(self, dash_app: Any) -> Callable[[], HttpResponse]:
        def dispatch() -> HttpResponse:
            try:
                body = _called(dash_app, DjangoRequestAdapter().get_json())
                context = dash_app._initialize_context(body)
            except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
                # Dash reads a body's parts as it needs them: one that is no call fails anywhere.
                raise BadCall(f"the body is no call of a callback here: {type(error).__name__}") from error
            function = dash_app._prepare_callback(context, body)
            arguments = dash_app._inputs_to_vals(context.inputs_list + context.states_list)
            data = dash_app._execute_callback(function, arguments, context.outputs_list, context)()
            response: HttpResponse = context.dash_response.set_response(data=data)
            return response

        return dispatch

    def register_assets_blueprint(self, blueprint_name: str, assets_url_path: str, assets_folder: str) -> None:
        """Static files of the page are Django's."""

    def setup_index(self, dash_app: Dash) -> None:
        """The page is a Django view."""

    def setup_catchall(self, dash_app: Dash) -> None:
        """An address that nobody knows is Django's 404."""

    def register_error_handlers(self) -> None:
        """Errors become answers in `DashRoutes`."""

    def register_callback_api_routes(self, callback_api_paths: Mapping[str, Any]) -> None:
        """Callbacks have no addresses of their own."""

    def after_request(self, func: Callable[..., Any]) -> None:
        raise NotImplementedError("use Django's middleware")

    def enable_compression(self) -> None:
        raise NotImplementedError("component suites are compressed already")

    def register_prune_error_handler(self, secret: str, prune_errors: bool) -> None:
        raise NotImplementedError("Dash's developer tools are off: they show stack traces")

    def register_timing_hooks(self, first_run: bool) -> None:
        raise NotImplementedError("Dash's developer tools are off: they show stack traces")

    def run(self, dash_app: Dash, host: str, port: int, debug: bool, **kwargs: Any) -> None:
        raise NotImplementedError("`headworks web` serves this")


def _called(dash_app: Any, body: Any) -> Any:
    """The body, if its inputs, states and output are those of a callback; values are the callback's to check."""
    callback = dash_app.callback_map[body["output"]]
    for part in ("inputs", "state"):
        given = [(each["id"], each["property"], "value" in each) for each in body.get(part, ())]
        if given != [(each["id"], each["property"], True) for each in callback[part]]:
            raise ValueError(f"other {part} than the callback's")
    if "{id}.{property}".format_map(body["outputs"]) != body["output"]:
        raise ValueError("other outputs than the callback's")
    return body


def _file(package: str, path: str, *, kept: bool) -> HttpResponse:
    response = HttpResponse(content_type=mimetypes.guess_type(path)[0] or "application/octet-stream")
    response["Cache-Control"] = _FOREVER if kept else "no-cache"
    patch_vary_headers(response, ["Accept-Encoding"])
    if "gzip" in current_request().headers.get("Accept-Encoding", ""):
        response["Content-Encoding"] = "gzip"
        response.content = _packed(package, path)
    else:
        response.content = pkgutil.get_data(package, path) or b""
    return response


@cache
def _packed(package: str, path: str) -> bytes:
    """plotly.js has 4.7 MB, of which 1.4 MB go over the wire."""
    return gzip.compress(pkgutil.get_data(package, path) or b"", 6)
