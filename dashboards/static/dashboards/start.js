// What Dash would put into the page as an inline script.
new DashRenderer();
