"""Good requests for the operations of the descriptions, and the records they need.

Each request has records of its own, so no order of requests matters.
"""

import base64
import datetime
import json
import os
from dataclasses import dataclass, field
from itertools import count

import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
ADMIN = os.environ["DOORWARD_ADMIN"]
PROXY = os.environ["DOORWARD_BASE"]
PASSWORD = "Wonderland-7"
CALLBACK = "https://shop.example/cb"
JWK = json.dumps(
    {
        "kty": "EC",
        "crv": "P-256",
        "kid": "1",
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    }
)

# Runs follow one another on the same records.
numbers = count(os.getpid() * 10_000)


def new(word):
    """A name that nothing has."""
    return f"{word}{next(numbers)}"


@dataclass
class Request:
    path: dict = field(default_factory=dict)
    query: dict = field(default_factory=dict)
    headers: dict = field(default_factory=dict)
    body: object = None
    media_type: str = JSON


def call(method, url, **arguments):
    answer = requests.request(method, url, timeout=20, allow_redirects=False, **arguments)
    if answer.status_code >= 400:
        raise AssertionError(f"{method} {url}: {answer.status_code} {answer.text}")
    return answer


def make(path, body):
    """Makes a record; the answer."""
    return call("POST", ADMIN + path, json=body).json()


def listed(path):
    return call("GET", ADMIN + path).json()["data"]


def certificate(is_authority=False):
    """A self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, new("c") + ".test")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=9))
    constraints = x509.BasicConstraints(ca=is_authority, path_length=None)
    made = builder.add_extension(constraints, critical=True).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(pem, form, serialization.NoEncryption())
    return made.public_bytes(pem).decode(), secret.decode()


def identity_of(kind):
    """The identifier of a new record of the Admin API, in a reference."""
    return {"id": make(f"/{kind}", BODIES[kind]())["id"]}


def cert_body():
    cert, key = certificate()
    return {"cert": cert, "key": key}


# What makes a record, by the last part of its collection.
BODIES = {
    "services": lambda: {
        "name": new("s"),
        "url": "https://127.0.0.1:9",
        "client_certificate": identity_of("certificates"),
        "tags": ["tag"],
    },
    "routes": lambda: {
        "name": new("r"),
        "hosts": [new("h") + ".test"],
        "service": identity_of("services"),
    },
    "consumers": lambda: {"username": new("ann")},
    "consumer_groups": lambda: {"name": new("gold")},
    "upstreams": lambda: {"name": new("u"), "client_certificate": identity_of("certificates")},
    "targets": lambda: {"target": f"127.0.0.1:{next(numbers) % 60_000 + 1000}"},
    "certificates": cert_body,
    "snis": lambda: {"name": new("n") + ".test", "certificate": identity_of("certificates")},
    "ca_certificates": lambda: {"cert": certificate(is_authority=True)[0]},
    "key-sets": lambda: {"name": new("set")},
    "keys": lambda: {
        "name": new("k"),
        "kid": "1",
        "set": identity_of("key-sets"),
        "jwk": JWK,
    },
    "vaults": lambda: {"name": "env", "prefix": new("my-env"), "config": {"prefix": "MY_"}},
    "plugins": lambda: {
        "name": "rate-limiting",
        "config": {"minute": 5},
        "service": identity_of("services"),
        "route": identity_of("routes"),
        "consumer": identity_of("consumers"),
    },
    "acls": lambda: {"group": new("g"), "consumer": identity_of("consumers")},
    "basic-auths": lambda: {
        "username": new("b"),
        "password": PASSWORD,
        "consumer": identity_of("consumers"),
    },
    "hmac-auths": lambda: {"username": new("m"), "consumer": identity_of("consumers")},
    "jwts": lambda: {"consumer": identity_of("consumers")},
    "key-auths": lambda: {"consumer": identity_of("consumers")},
    "oauth2": lambda: {
        "name": new("app"),
        "redirect_uris": ["https://a.test/cb"],
        "consumer": identity_of("consumers"),
    },
    "oauth2_tokens": lambda: {"credential": identity_of("oauth2"), "expires_in": 60},
}
# Collections of credentials below a consumer have other names.
BODIES |= {name: BODIES[name + "s"] for name in ["basic-auth", "hmac-auth", "jwt", "key-auth"]}

# What a parent says, its children do not.
PARENTS = {
    "services": "service",
    "routes": "route",
    "consumers": "consumer",
    "consumer_groups": "consumer_group",
    "certificates": "certificate",
    "key-sets": "set",
}


def body_below(parent, collection):
    body = BODIES[collection]()
    body.pop(PARENTS.get(parent, ""), None)
    if parent == "certificates":
        body.pop("client_certificate", None)
    if parent == "consumer_groups":
        # A plugin is for a consumer or for a group.
        body.pop("consumer", None)
    return body


# The single record that another refers to.
SINGLES = {
    "service": "services",
    "route": "routes",
    "consumer": "consumers",
    "client_certificate": "certificates",
    "set": "key-sets",
}


class Entities:
    """Records of the gateway, by the parts of their paths."""

    def request(self, method, template):
        path, below, parent = {}, "", ""
        parts = template.strip("/").split("/")
        while len(parts) > 1:
            collection, name = parts[0], parts[1].strip("{}")
            if collection not in BODIES:
                break
            made = make(f"{below}/{collection}", body_below(parent, collection))
            path[name] = made["id"]
            below, parent, parts = f"{below}/{collection}/{made['id']}", collection, parts[2:]
        body = None
        if method != "GET" and method != "DELETE":
            body = self.body(method, parent, parts)
        return Request(path=path, body=body)

    def body(self, method, parent, parts):
        kind = SINGLES.get(parts[0], parts[0]) if parts else parent
        if method == "PATCH":
            return {"tags": ["other"]} if kind not in ("oauth2_tokens",) else {"scope": "a"}
        if kind not in BODIES:
            return None
        return body_below(parent, kind) if parts else BODIES[kind]()


def person():
    """A new user of the root realm."""
    name = new("user")
    body = {"userName": name, "password": PASSWORD}
    body["emails"] = [{"value": f"{name}@example.com", "primary": True}]
    made = make("/identity/users", body)
    return name, made["id"]


def sign_in(name, password=PASSWORD):
    headers = {"X-Service-Username": name, "X-Service-Password": password}
    return requests.post(f"{PROXY}/json/authenticate", headers=headers, timeout=20)


def session():
    """A user with a session: name, identifier, token."""
    name, identifier = person()
    answer = sign_in(name)
    answer.raise_for_status()
    return name, identifier, answer.json()["tokenId"]


def client(**metadata):
    metadata = {"client_id": new("client"), "grant_types": ["client_credentials"]} | metadata
    return make("/identity/clients", metadata)


def group(**members):
    return make("/identity/groups", {"displayName": new("group")} | members)["id"]


def developer():
    return make("/broker/developers", {"email": new("dev") + "@example.com"})["email"]


def application():
    body = {"name": new("app"), "developer": developer(), "products": ["weather"]}
    return make("/broker/applications", body)


def locked():
    name, identifier = person()
    for _ in range(3):
        sign_in(name, "wrong")
    locks = listed("/identity/lockouts?size=1000")
    return next(lock["id"] for lock in locks if lock["user"] == identifier)


def retired():
    name, identifier = person()
    call("DELETE", f"{ADMIN}/identity/users/{identifier}")
    return name


def membership():
    """A consumer in a group."""
    group, consumer = identity_of("consumer_groups")["id"], identity_of("consumers")["id"]
    make(f"/consumer_groups/{group}/consumers", {"consumer": consumer})
    return {"consumer_groups": group, "consumers": consumer}


def side(name):
    return lambda: {name: membership()[name]}


def plugin_of_group():
    body = body_below("consumer_groups", "plugins")
    made = make("/plugins", body | {"consumer_group": identity_of("consumer_groups")})
    return {"plugins": made["id"]}


def cached():
    """The key of an answer that a plugin keeps."""
    key = call("GET", f"{PROXY}/cached/{new('page')}").headers["X-Cache-Key"]
    # The client may have its answer before the plugin has kept it.
    while requests.get(f"{ADMIN}/proxy-cache/{key}", timeout=20).status_code == 404:
        pass
    return key


def plugin(name):
    return next(one["id"] for one in listed("/plugins?declared=true") if one["name"] == name)


def forget_plugins():
    """Deletes the plugins that were made, but for those of one service."""
    for one in listed("/plugins?size=1000"):
        if not one["service"]:
            call("DELETE", f"{ADMIN}/plugins/{one['id']}")


def throttled():
    call("GET", f"{PROXY}/limited")
    limits = listed("/throttling")[0]["plugin"]["id"]
    hottest = call("GET", f"{ADMIN}/throttling/{limits}").json()["hottest"]
    return {"plugins": limits, "partition": hottest[0]["id"]}


def login_session():
    call("GET", f"{PROXY}/signed", auth=("demo", "Ch4ng31t-demo"))
    return listed("/openid-connect/sessions")[-1]["id"]


def issuer():
    call("GET", f"{PROXY}/signed", auth=("demo", "Ch4ng31t-demo"))
    return listed("/openid-connect/issuers")[0]["id"]


def broker_tokens():
    """Tokens of the broker, for an application whose key is a client of the provider."""
    name, _ = person()
    form = {"grant_type": "password", "username": name, "password": PASSWORD, "scope": "openid"}
    url = f"{PROXY}/weather/access_token"
    return call("POST", url, data=form, auth=("orders", "orders-secret")).json()


def address():
    upstream = make("/upstreams", {"name": new("u")})["id"]
    body = BODIES["targets"]()
    target = make(f"/upstreams/{upstream}/targets", body)["id"]
    return {"upstreams": upstream, "targets": target, "address": body["target"]}


def target():
    found = address()
    del found["address"]
    return found


def identity_link():
    _, identifier = person()
    body = {"issuer": "https://other.example", "subject": new("subject")}
    made = make(f"/identity/users/{identifier}/identities", body)
    return {"id": identifier, "id2": made["id"]}


def consent():
    """What a user has agreed to, and a code."""
    _, identifier, token = session()
    made = client(grant_types=["authorization_code"], redirect_uris=[CALLBACK], scope="openid")
    name = made["client_id"]
    query = {"client_id": name, "response_type": "code", "scope": "openid"}
    query["redirect_uri"] = CALLBACK
    call(
        "POST",
        f"{PROXY}/oauth2/authorize",
        params=query,
        data={"decision": "allow", "csrf": token, "save_consent": "on"},
        cookies={"iPlanetDirectoryPro": token},
    )
    return {"id": identifier, "id2": name}


def identity(kind):
    return lambda: {"id": KINDS[kind]()}


KINDS = {
    "clients": lambda: client()["client_id"],
    "groups": group,
    "initial-tokens": lambda: make("/identity/initial-tokens", {"uses": 1})["id"],
    "lockouts": locked,
    "users": lambda: person()[1],
    "applications": lambda: application()["consumer_key"],
    "developers": developer,
    "products": lambda: make("/broker/products", {"name": new("product")})["name"],
}


def sessions():
    name, _, _ = session()
    found = listed(f"/identity/sessions?user={name}")
    return {"id": found[0]["id"]}


def realm():
    path = new("realm")
    make("/identity/realms", {"path": f"/{path}"})
    return {"path": path}


def member():
    _, identifier = person()
    return {"id": group(members=[identifier]), "id2": identifier}


def user_body():
    return {"userName": new("user"), "password": PASSWORD}


def broker_body(kind, path):
    """What makes a record of the broker, or replaces the one at `path`."""
    if kind == "applications":
        return {"name": new("app"), "developer": developer()}
    own = {"developers": "email", "products": "name"}[kind]
    return {own: path.get("id") or new("made") + ("@example.com" if own == "email" else "")}


class Admin:
    """Good requests of the Admin API."""

    # Paths whose records are no entities.
    PATHS = {
        "/audit": dict,
        "/cache/{key}": lambda: {"key": "services:web"},
        "/consumer_groups/{consumer_groups}/consumers": side("consumer_groups"),
        "/consumer_groups/{consumer_groups}/consumers/{consumers}": membership,
        "/consumers/{consumers}/consumer_groups": side("consumers"),
        "/consumers/{consumers}/consumer_groups/{consumer_groups}": membership,
        "/debug/cluster/log-level/{level}": lambda: {"level": "info"},
        "/debug/node/log-level/{level}": lambda: {"level": "info"},
        "/identity/groups/{id}/members/{id2}": member,
        "/identity/realms/{path}": realm,
        "/identity/sessions/{id}": sessions,
        "/identity/users/{id}/consents/{id2}": consent,
        "/identity/users/{id}/identities/{id2}": identity_link,
        "/openid-connect/issuers/{issuer}": lambda: {"issuer": issuer()},
        "/openid-connect/sessions/{id}": lambda: {"id": login_session()},
        "/plugins/{plugins}/consumer_group": plugin_of_group,
        "/plugins/schema/{name}": lambda: {"name": "cors"},
        "/proxy-cache/{key}": lambda: {"key": cached()},
        "/proxy-cache/{plugins}/caches/{key}": lambda: {
            "plugins": plugin("proxy-cache"),
            "key": cached(),
        },
        "/route-files/{id}": lambda: {"id": listed("/route-files")[0]["id"]},
        "/schemas/plugins/{name}": lambda: {"name": "cors"},
        "/schemas/vaults/{name}": lambda: {"name": "env"},
        "/schemas/{entity}": lambda: {"entity": "services"},
        "/schemas/{entity}/validate": lambda: {"entity": "services"},
        "/sessions/{id}": lambda: {"id": new("none")},
        "/tags/{tags}": lambda: {"tags": "tag"},
        "/throttling/{plugins}": lambda: {"plugins": throttled()["plugins"]},
        "/throttling/{plugins}/{partition}": throttled,
        "/upstreams/{upstreams}/targets/{targets}": target,
        "/upstreams/{upstreams}/targets/{targets}/{address}/healthy": address,
        "/upstreams/{upstreams}/targets/{targets}/{address}/unhealthy": address,
        "/workspaces/{workspaces}": lambda: {"workspaces": "default"},
    }
    # Bodies that are no entities.
    WRITTEN = {
        "POST /broker/applications/{id}/secret": dict,
        "POST /broker/tokens/revoke": lambda: {"token": broker_tokens()["access_token"]},
        "POST /config": lambda: {"_format_version": "3.0", "services": []},
        "POST /consumer_groups/{consumer_groups}/consumers": lambda: {
            "consumer": identity_of("consumers")["id"],
        },
        "PUT /consumer_groups/{consumer_groups}/plugins/{plugins}": lambda: body_below(
            "consumer_groups", "plugins"
        ),
        "POST /consumers/{consumers}/consumer_groups": lambda: {
            "group": identity_of("consumer_groups")["id"],
        },
        "PATCH /plugins/{plugins}/consumer_group": lambda: {"tags": ["other"]},
        "PUT /plugins/{plugins}/consumer_group": lambda: BODIES["consumer_groups"](),
        "POST /explain": lambda: {"url": f"{PROXY}/cached"},
        "POST /identity/clients": lambda: {"client_id": new("client")},
        "PUT /identity/clients/{id}": dict,
        "PATCH /identity/clients/{id}": lambda: {"client_name": "Shop"},
        "POST /identity/clients/{id}/secret": dict,
        "POST /identity/groups": lambda: {"displayName": new("group")},
        "PATCH /identity/groups/{id}": lambda: {"displayName": new("group")},
        "POST /identity/initial-tokens": lambda: {"uses": 1},
        "POST /identity/keys/rotate": lambda: {"alg": "ES256"},
        "POST /identity/probes/federation": lambda: {"name": "other"},
        "POST /identity/probes/ldap": dict,
        "POST /identity/probes/mail": lambda: {"to": "ann@example.com"},
        "POST /identity/realms": lambda: {"path": "/" + new("realm")},
        "PUT /identity/realms/{path}": lambda: {"settings": {"access_token_lifetime": 60}},
        "PATCH /identity/realms/{path}": lambda: {"settings": {"access_token_lifetime": 60}},
        "POST /identity/users": user_body,
        "PATCH /identity/users/{id}": lambda: {"displayName": "Ann"},
        "POST /identity/users/{id}/identities": lambda: {
            "issuer": "https://other.example",
            "subject": new("subject"),
        },
        "POST /schemas/plugins/validate": lambda: {"name": "cors"},
        "POST /schemas/vaults/validate": lambda: BODIES["vaults"](),
        "POST /schemas/{entity}/validate": lambda: BODIES["services"](),
    }
    QUERIES = {
        "DELETE /identity/retired-names": lambda: {"name": retired()},
        "POST /config": lambda: {"check": "1"},
        "DELETE /identity/lockouts": lambda: {"name": new("nobody")},
        "DELETE /identity/sessions": lambda: {"user": session()[0]},
        "DELETE /openid-connect/sessions": lambda: {"user": "demo"},
    }
    entities = Entities()

    def request(self, method, template):
        label = f"{method} {template}"
        request = Request()
        parts = template.strip("/").split("/")
        if template in self.PATHS:
            request.path = self.PATHS[template]()
            if parts[0] == "upstreams" and len(parts) == 4 and method in ("PUT", "PATCH"):
                request.body = {"target": address()["address"]} if method == "PUT" else {"weight": 7}
        elif parts[0] in ("identity", "broker"):
            if "{id}" in template:
                request.path = identity(parts[1])()
            if parts[0] == "broker" and method in ("POST", "PUT", "PATCH") and label not in self.WRITTEN:
                request.body = {} if method == "PATCH" else broker_body(parts[1], request.path)
        else:
            request = self.entities.request(method, template)
        if label in self.WRITTEN:
            request.body = self.WRITTEN[label]()
        if label in self.QUERIES:
            request.query = self.QUERIES[label]()
        return request
