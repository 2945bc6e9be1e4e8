"""Good requests for the operations of the identity provider."""

from description_records import (
    CALLBACK,
    FORM,
    PASSWORD,
    PROXY,
    Request,
    broker_tokens,
    call,
    client,
    group,
    new,
    person,
    session,
)

ORDERS = {"client_id": "orders", "client_secret": "orders-secret"}
USER_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP_SCHEMA = "urn:ietf:params:scim:schemas:core:2.0:Group"
MESSAGE = "urn:ietf:params:scim:api:messages:2.0:"


def tokens(**form):
    return call("POST", f"{PROXY}/oauth2/access_token", data=ORDERS | form).json()


def client_token():
    return tokens(grant_type="client_credentials", scope="scim:read scim:write")["access_token"]


def user_tokens():
    name, _ = person()
    scope = "openid profile scim:read me:write"
    return tokens(grant_type="password", username=name, password=PASSWORD, scope=scope)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def form(**members):
    return Request(body=ORDERS | members, media_type=FORM)


def of_session(path=None, query=None, body=None):
    """A request of a user who has signed in. `{name}` in `path` is the user."""
    name, _, token = session()
    headers = {"iPlanetDirectoryPro": token, "Accept-API-Version": "resource=2.1"}
    path = {key: value.format(name=name) for key, value in (path or {}).items()}
    return Request(path=path, query=query or {}, headers=headers, body=body)


def page():
    _, _, token = session()
    return Request(headers={"Cookie": f"iPlanetDirectoryPro={token}"})


def shop():
    metadata = {"grant_types": ["authorization_code"], "redirect_uris": [CALLBACK]}
    return client(scope="openid", client_secret="a-secret-of-the-shop", **metadata)


def authorization():
    request = page()
    request.query = {"client_id": shop()["client_id"], "response_type": "code"}
    request.query |= {"scope": "openid", "redirect_uri": CALLBACK}
    return request


def agreed():
    request = authorization()
    token = request.headers["Cookie"].split("=", 1)[1]
    request.body = request.query | {"decision": "allow", "csrf": token}
    request.query, request.media_type = {}, FORM
    return request


def pushed():
    body = {"client_id": shop()["client_id"], "client_secret": "a-secret-of-the-shop"}
    body |= {"response_type": "code", "scope": "openid", "redirect_uri": CALLBACK}
    return Request(body=body, media_type=FORM)


def device():
    made = client(
        grant_types=["urn:ietf:params:oauth:grant-type:device_code"],
        token_endpoint_auth_method="none",
        scope="openid",
    )
    return Request(body={"client_id": made["client_id"], "scope": "openid"}, media_type=FORM)


def metadata():
    return {"redirect_uris": ["https://new.example/cb"], "client_name": "New"}


def registered(body=None):
    made = call("POST", f"{PROXY}/oauth2/connect/register", json=metadata()).json()
    if body is not None:
        body = body | {"client_id": made["client_id"]}
    query = {"client_id": made["client_id"]}
    return Request(query=query, headers=bearer(made["registration_access_token"]), body=body)


def scim(path=None, body=None, token=None):
    return Request(path=path or {}, headers=bearer(token or client_token()), body=body)


def of_user(body=None):
    return scim({"id": person()[1]}, body)


def of_group(body=None):
    return scim({"id": group()}, body)


def me(body=None):
    return scim(body=body, token=user_tokens()["access_token"])


def own_record():
    token = user_tokens()["access_token"]
    record = call("GET", f"{PROXY}/v1/Me", headers=bearer(token)).json()
    body = {"schemas": [USER_SCHEMA], "userName": record["userName"], "displayName": "Ann"}
    return scim(body=body, token=token)


def user_body():
    return {"schemas": [USER_SCHEMA], "userName": new("user"), "password": PASSWORD}


def group_body():
    return {"schemas": [GROUP_SCHEMA], "displayName": new("group")}


def patch(**value):
    operation = {"op": "replace", "value": value}
    return {"schemas": [f"{MESSAGE}PatchOp"], "Operations": [operation]}


def search():
    return {"schemas": [f"{MESSAGE}SearchRequest"], "count": 1}


def bulk():
    operation = {"method": "POST", "path": "/users", "bulkId": "1", "data": user_body()}
    return {"schemas": [f"{MESSAGE}BulkRequest"], "Operations": [operation]}


def authenticate():
    name, _ = person()
    return Request(headers={"X-Service-Username": name, "X-Service-Password": PASSWORD})


def change_password():
    body = {"currentpassword": PASSWORD, "userpassword": "Wonderland-8"}
    return of_session({"id": "{name}"}, {"_action": "changePassword"}, body)


def session_by_name():
    _, _, token = session()
    return Request(path={"id": token}, query={"_action": "validate"})


GOOD = {
    "POST /json/authenticate": authenticate,
    "GET /json/serverinfo/{id}": lambda: Request(path={"id": "*"}),
    "POST /json/sessions": lambda: of_session(query={"_action": "getSessionInfo"}),
    "POST /json/sessions/{id}": session_by_name,
    "POST /json/users": lambda: of_session(query={"_action": "idFromSession"}),
    "GET /json/users/{id}": lambda: of_session({"id": "{name}"}),
    "POST /json/users/{id}": change_password,
    "POST /oauth2/access_token": lambda: form(grant_type="client_credentials", scope="profile"),
    "GET /oauth2/account": page,
    "GET /oauth2/authorize": authorization,
    "POST /oauth2/authorize": agreed,
    "GET /oauth2/authorize/login": page,
    "GET /oauth2/connect/endSession": page,
    "POST /oauth2/connect/register": lambda: Request(body=metadata()),
    "GET /oauth2/connect/register": registered,
    "PUT /oauth2/connect/register": lambda: registered(metadata()),
    "DELETE /oauth2/connect/register": registered,
    "POST /oauth2/device/code": device,
    "GET /oauth2/device/user": page,
    "GET /oauth2/federation/{id}": lambda: Request(path={"id": "other"}),
    "POST /oauth2/idtokeninfo": lambda: form(id_token=user_tokens()["id_token"]),
    "POST /oauth2/introspect": lambda: form(token=client_token()),
    "POST /oauth2/par": pushed,
    "GET /oauth2/password/forgot": Request,
    "POST /oauth2/token/revoke": lambda: form(token=client_token()),
    "GET /oauth2/tokeninfo": lambda: Request(headers=bearer(client_token())),
    "GET /oauth2/userinfo": lambda: Request(headers=bearer(user_tokens()["access_token"])),
    "POST /oauth2/userinfo": lambda: Request(headers=bearer(user_tokens()["access_token"])),
    "POST /v1/.search": lambda: scim(body=search()),
    "POST /v1/Bulk": lambda: scim(body=bulk()),
    "GET /v1/Me": me,
    "PUT /v1/Me": own_record,
    "PATCH /v1/Me": lambda: me(patch(displayName="Ann")),
    "GET /v1/ResourceTypes/{id}": lambda: Request(path={"id": "User"}),
    "GET /v1/Schemas/{id}": lambda: Request(path={"id": USER_SCHEMA}),
    "GET /v1/groups": scim,
    "POST /v1/groups": lambda: scim(body=group_body()),
    "POST /v1/groups/.search": lambda: scim(body=search()),
    "GET /v1/groups/{id}": of_group,
    "PUT /v1/groups/{id}": lambda: of_group(group_body()),
    "PATCH /v1/groups/{id}": lambda: of_group(patch(displayName=new("group"))),
    "DELETE /v1/groups/{id}": of_group,
    "GET /v1/users": scim,
    "POST /v1/users": lambda: scim(body=user_body()),
    "POST /v1/users/.search": lambda: scim(body=search()),
    "GET /v1/users/{id}": of_user,
    "PUT /v1/users/{id}": lambda: of_user(user_body()),
    "PATCH /v1/users/{id}": lambda: of_user(patch(displayName="Ann")),
    "DELETE /v1/users/{id}": of_user,
}


class Provider:
    """Good requests of the provider; a page that needs its own form has none."""

    def request(self, method, template):
        make = GOOD.get(f"{method} {template}")
        # Metadata, keys and files want nothing.
        return make() if make else Request() if method == "GET" and "{" not in template else None


class Broker:
    """Good requests of the token broker's clients."""

    def request(self, method, template):
        body = ORDERS | {"grant_type": "password", "scope": "openid"}
        body |= {"username": "demo", "password": "Ch4ng31t-demo"}
        if template == "/refresh_token":
            token = broker_tokens()["refresh_token"]
            body = ORDERS | {"grant_type": "refresh_token", "refresh_token": token}
        return Request(body=body, media_type=FORM)
