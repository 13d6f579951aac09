"""Where LiteLLM-shaped calls stand below the place that the site gives them: /key/… and /team/…."""

from controlplane.litellm_admin.api import api

urlpatterns = api.urls[0]
