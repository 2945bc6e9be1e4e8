"""Authlib as a client of every grant that it knows."""

import base64
import hashlib
import json
import os
import re
import time
import unittest
from html import unescape
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import requests
from authlib.common.security import generate_token
from authlib.integrations.requests_client import AssertionSession, OAuth2Session
from authlib.integrations.base_client.errors import OAuthError
from authlib.oauth2.rfc7523 import ClientSecretJWT, PrivateKeyJWT
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oauth2.rfc8628 import DEVICE_CODE_GRANT_TYPE
from authlib.oidc.core import CodeIDToken, HybridIDToken, ImplicitIDToken
from authlib.oidc.discovery import OpenIDProviderMetadata
from authlib.oidc import rpinitiated
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, import_key

BASE = os.environ["DOORWARD_BASE"]
ISSUER = f"{BASE}/oauth2"
CALLBACK = "https://app.test/cb"
DESK = ("front desk+1:100%", "s3cr:et+ %41&=/é")
with open(os.environ["DOORWARD_KEYS"], encoding="utf-8") as file:
    KEYS = json.load(file)


def metadata():
    answer = requests.get(f"{ISSUER}/.well-known/openid-configuration", timeout=20)
    answer.raise_for_status()
    return answer.json()


META = metadata()


class Browser(requests.Session):
    """Keeps cookies, fills in forms, and stops where the client begins."""

    def authorize(self, url, user="demo", decide="approve"):
        """Where the client is told what came of its request."""
        for answer in self.pages(url, user, decide):
            if answer.is_redirect:
                return urljoin(answer.url, answer.headers["location"])
        raise AssertionError("the provider leads nowhere")

    def pages(self, url, user="demo", decide="approve"):
        """Goes on to a page without a form, or to an address of others."""
        answer = self.get(url, allow_redirects=False, timeout=20)
        for _ in range(10):
            if answer.is_redirect:
                target = urljoin(answer.url, answer.headers["location"])
                if not target.startswith(BASE):
                    yield answer
                    return
                answer = self.get(target, allow_redirects=False, timeout=20)
                continue
            assert answer.status_code == 200, answer.text
            if "<form" not in answer.text:
                yield answer
                return
            action = unescape(re.search(r'<form method="post" action="([^"]*)"', answer.text)[1])
            fields = {
                unescape(name): unescape(value)
                for name, value in re.findall(
                    r'<input type="hidden" name="([^"]*)" value="([^"]*)"', answer.text
                )
            }
            if 'name="password"' in answer.text:
                fields |= {"username": user, "password": f"Ch4ng31t-{user}", "login": "true"}
            else:
                fields[decide] = "true"
            answer = self.post(
                urljoin(answer.url, action), data=fields, allow_redirects=False, timeout=20
            )
        raise AssertionError("the provider leads in circles")


def signed(token, alg="RS256"):
    """A token that one of the published keys signed."""
    keys = KeySet.import_key_set(requests.get(META["jwks_uri"], timeout=20).json())
    return jwt.decode(token, keys, algorithms=[alg])


def verified(token, alg="RS256", **expected):
    """The claims of such a token, which must be these."""
    claims = signed(token, alg).claims
    registry = jwt.JWTClaimsRegistry(
        **{name: {"essential": True, "value": value} for name, value in expected.items()}
    )
    registry.validate(claims)
    return claims


def jwt_alg(token):
    """By what a token says that it is signed; access tokens are for servers."""
    header = token.split(".")[0]
    return json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["alg"]


class Clients(unittest.TestCase):
    def sign_in(self, session, scope="openid profile", **more):
        verifier, nonce = generate_token(48), generate_token(20)
        url, state = session.create_authorization_url(
            META["authorization_endpoint"],
            redirect_uri=CALLBACK,
            scope=scope,
            code_verifier=verifier,
            nonce=nonce,
            **more,
        )
        answer = Browser().authorize(url)
        token = session.fetch_token(
            META["token_endpoint"],
            authorization_response=answer,
            redirect_uri=CALLBACK,
            code_verifier=verifier,
            state=state,
        )
        claims = verified(
            token["id_token"], iss=ISSUER, aud=session.client_id, sub="demo", nonce=nonce
        )
        return token, claims

    def session(self, client_id, secret, method, **more):
        return OAuth2Session(
            client_id, secret, token_endpoint_auth_method=method, code_challenge_method="S256", **more
        )

    def test_client_credentials_with_every_authentication(self):
        ways = [
            ("form fields", "poster", "poster-secret", "client_secret_post", None),
            ("shared", "shared", "0123456789abcdef" * 2, "client_secret_jwt",
             ClientSecretJWT(META["token_endpoint"])),
        ]
        for alg, client in [("ES256", "key-es"), ("RS256", "key-rs"), ("PS256", "key-ps"), ("EdDSA", "key-ed")]:
            method = PrivateKeyJWT(META["token_endpoint"], alg=alg)
            key = import_key(KEYS[alg]["pem"], {"EdDSA": "OKP", "ES256": "EC"}.get(alg, "RSA"))
            ways.append((alg, client, key, "private_key_jwt", method))
        for name, client, secret, method, signer in ways:
            with self.subTest(name):
                session = self.session(client, secret, method)
                if signer:
                    session.register_client_auth_method(signer)
                token = session.fetch_token(
                    META["token_endpoint"], grant_type="client_credentials", scope="read"
                )
                self.assertEqual(token["scope"], "read")
                self.assertEqual(token["token_type"], "Bearer")

    def test_basic_authentication_of_a_plain_name(self):
        # Authlib does not encode names and secrets as RFC 6749 wants, so these
        # have no character that would need it.
        session = self.session("caller", "caller-secret", "client_secret_basic")
        token = session.fetch_token(
            META["token_endpoint"], grant_type="client_credentials", scope="read"
        )
        self.assertEqual(token["scope"], "read")

    def test_a_wrong_secret_is_refused(self):
        session = self.session("caller", "wrong", "client_secret_basic")
        with self.assertRaises(OAuthError) as refused:
            session.fetch_token(META["token_endpoint"], grant_type="client_credentials")
        self.assertEqual(refused.exception.error, "invalid_client")

    def test_code_with_pkce_leads_to_tokens_and_userinfo(self):
        session = self.session("poster", "poster-secret", "client_secret_post")
        _, claims = self.sign_in(session, "openid profile email")
        self.assertLessEqual(claims["iat"], time.time() + 1)
        info = session.get(META["userinfo_endpoint"], timeout=20).json()
        self.assertEqual((info["sub"], info["email"]), ("demo", "demo@example.com"))

    def test_a_public_client(self):
        session = self.session("native", None, "none")
        token, _ = self.sign_in(session, "openid")
        self.assertNotIn("refresh_token", {name for name, value in token.items() if not value})

    def test_a_denied_consent_is_an_error(self):
        session = self.session(*DESK, "client_secret_basic")
        url, state = session.create_authorization_url(
            META["authorization_endpoint"], redirect_uri=CALLBACK, scope="openid",
            code_verifier=generate_token(48),
        )
        answer = Browser().authorize(url, user="alice", decide="deny")
        told = parse_qs(urlsplit(answer).query)
        self.assertEqual((told["error"], told["state"]), (["access_denied"], [state]))

    def test_a_refresh_token_is_replaced(self):
        session = self.session("poster", "poster-secret", "client_secret_post")
        first, _ = self.sign_in(session, "openid offline_access", prompt="consent")
        second = session.refresh_token(META["token_endpoint"])
        self.assertNotEqual(first["refresh_token"], second["refresh_token"])
        with self.assertRaises(OAuthError) as refused:
            session.refresh_token(META["token_endpoint"], refresh_token=first["refresh_token"])
        self.assertEqual(refused.exception.error, "invalid_grant")

    def test_the_password_grant(self):
        session = self.session("poster", "poster-secret", "client_secret_post")
        token = session.fetch_token(
            META["token_endpoint"], username="demo", password="Ch4ng31t-demo", scope="openid"
        )
        self.assertIn("refresh_token", token)
        with self.assertRaises(OAuthError) as refused:
            session.fetch_token(
                META["token_endpoint"], username="demo", password="wrong", scope="openid"
            )
        self.assertEqual(refused.exception.error, "invalid_grant")

    def test_an_assertion_as_a_grant(self):
        session = AssertionSession(
            META["token_endpoint"],
            issuer="https://trusted.example",
            subject="demo",
            audience=ISSUER,
            key=KEYS["ES256"]["pem"],
            header={"alg": "ES256", "kid": KEYS["ES256"]["jwk"]["kid"]},
            claims={"jti": generate_token(20)},
            scope="openid",
        )
        # The library brings the assertion alone; the client is named beside it.
        original = session.request

        def request(method, url, **kwargs):
            if url == META["token_endpoint"]:
                kwargs["auth"] = ("partner", "partner-secret")
            return original(method, url, **kwargs)

        session.request = request
        session.refresh_token()
        info = session.get(META["userinfo_endpoint"], timeout=20).json()
        self.assertEqual(info["sub"], "demo")

    def test_introspection_and_revocation(self):
        session = self.session("caller", "caller-secret", "client_secret_basic")
        token, _ = self.sign_in(session, "openid read")

        def told():
            answer = session.introspect_token(
                META["introspection_endpoint"], token=token["access_token"]
            )
            return answer.json()

        self.assertTrue(told()["active"])
        answer = session.revoke_token(META["revocation_endpoint"], token=token["access_token"])
        self.assertEqual(answer.status_code, 200)
        self.assertEqual(told(), {"active": False})

    def test_metadata_are_valid(self):
        OpenIDProviderMetadata(META).validate(
            metadata_classes=[rpinitiated.OpenIDProviderMetadata]
        )
        known = f"{BASE}/.well-known/oauth-authorization-server/oauth2"
        other = requests.get(known, timeout=20).json()
        AuthorizationServerMetadata(other).validate()
        self.assertEqual(other, META)

    def test_id_tokens_pass_the_checks_of_each_flow(self):
        nonce = generate_token(20)
        flows = [
            ("code id_token", HybridIDToken),
            ("code id_token token", HybridIDToken),
            ("id_token", ImplicitIDToken),
            ("id_token token", ImplicitIDToken),
        ]
        for response_type, kind in flows:
            with self.subTest(response_type):
                session = OAuth2Session("hybrid", "hybrid-secret", redirect_uri=CALLBACK, scope="openid")
                url, _ = session.create_authorization_url(
                    META["authorization_endpoint"], response_type=response_type, nonce=nonce
                )
                told = parse_qs(urlsplit(Browser().authorize(url)).fragment)
                told = {name: value for name, [value] in told.items()}
                token = signed(told["id_token"])
                expected = {"nonce": nonce, "client_id": "hybrid"}
                for name in ("code", "access_token"):
                    if name in told:
                        expected[name] = told[name]
                options = {"iss": {"value": ISSUER}, "aud": {"value": "hybrid"}}
                kind(token.claims, token.header, options, expected).validate(leeway=5)
        session = self.session("poster", "poster-secret", "client_secret_post")
        given, _ = self.sign_in(session, "openid", max_age="1000")
        token = signed(given["id_token"])
        expected = {"client_id": "poster", "max_age": 1000, "access_token": given["access_token"]}
        CodeIDToken(token.claims, token.header, {}, expected).validate(leeway=5)

    def test_a_device_is_let_in(self):
        asked = requests.post(
            META["device_authorization_endpoint"],
            data={"client_id": "tv", "scope": "openid email"},
            timeout=20,
        ).json()
        session = self.session("tv", None, "none")

        def poll():
            return session.fetch_token(
                META["token_endpoint"],
                grant_type=DEVICE_CODE_GRANT_TYPE,
                device_code=asked["device_code"],
            )

        with self.assertRaises(OAuthError) as refused:
            poll()
        self.assertEqual(refused.exception.error, "authorization_pending")
        list(Browser().pages(asked["verification_uri_complete"]))
        time.sleep(asked["interval"] + 0.2)
        verified(poll()["id_token"], iss=ISSUER, aud="tv", sub="demo")
        info = session.get(META["userinfo_endpoint"], timeout=20).json()
        self.assertEqual(info["email"], "demo@example.com")

    def test_tokens_are_exchanged(self):
        resource = "https://api.test/a"
        first = self.session("caller", "caller-secret", "client_secret_basic").fetch_token(
            META["token_endpoint"], username="demo", password="Ch4ng31t-demo",
            scope="read", resource=resource,
        )
        second = self.session("api", "api-secret", "client_secret_basic").fetch_token(
            META["token_endpoint"],
            grant_type="urn:ietf:params:oauth:grant-type:token-exchange",
            subject_token=first["access_token"],
            subject_token_type="urn:ietf:params:oauth:token-type:access_token",
            resource="https://deep.test/",
            scope="read",
        )
        claims = signed(second["access_token"], jwt_alg(second["access_token"])).claims
        self.assertEqual((claims["sub"], claims["client_id"]), ("demo", "api"))

    def test_proofs_of_another_library_bind_tokens(self):
        key = ECKey.generate_key("P-256")

        def proof(method, url, **more):
            header = {"alg": "ES256", "typ": "dpop+jwt", "jwk": key.as_dict(private=False)}
            claims = {"htm": method, "htu": url, "iat": int(time.time()), "jti": generate_token(20)}
            return jwt.encode(header, claims | more, key)

        session = self.session("bound", "bound-secret", "client_secret_basic")
        token = session.fetch_token(
            META["token_endpoint"], grant_type="client_credentials", scope="read",
            headers={"DPoP": proof("POST", META["token_endpoint"]), "Accept": "application/json"},
        )
        self.assertEqual(token["token_type"], "DPoP")
        claims = signed(token["access_token"], jwt_alg(token["access_token"])).claims
        self.assertEqual(claims["cnf"]["jkt"], key.thumbprint())
        url, verifier = META["userinfo_endpoint"], generate_token(48)
        address, state = session.create_authorization_url(
            META["authorization_endpoint"], redirect_uri=CALLBACK, scope="openid",
            code_verifier=verifier, dpop_jkt=key.thumbprint(),
        )
        token = session.fetch_token(
            META["token_endpoint"], authorization_response=Browser().authorize(address),
            redirect_uri=CALLBACK, code_verifier=verifier, state=state,
            headers={"DPoP": proof("POST", META["token_endpoint"]), "Accept": "application/json"},
        )
        digest = hashlib.sha256(token["access_token"].encode()).digest()
        ath = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        answer = requests.get(
            url, timeout=20,
            headers={
                "Authorization": f"DPoP {token['access_token']}",
                "DPoP": proof("GET", url, ath=ath),
            },
        )
        self.assertEqual(answer.json()["sub"], "demo")

    def test_signing_out_at_the_providers(self):
        session = self.session("hybrid", "hybrid-secret", "client_secret_basic")
        browser = Browser()
        verifier = generate_token(48)
        url, state = session.create_authorization_url(
            META["authorization_endpoint"], redirect_uri=CALLBACK, scope="openid",
            code_verifier=verifier,
        )
        token = session.fetch_token(
            META["token_endpoint"], authorization_response=browser.authorize(url),
            redirect_uri=CALLBACK, code_verifier=verifier, state=state,
        )
        end = {
            "id_token_hint": token["id_token"],
            "post_logout_redirect_uri": "https://app.test/bye",
            "state": "s",
        }
        gone = browser.authorize(f"{META['end_session_endpoint']}?{urlencode(end)}")
        self.assertEqual(gone, "https://app.test/bye?state=s")
        told = parse_qs(urlsplit(browser.authorize(f"{url}&prompt=none")).query)
        self.assertEqual(told["error"], ["login_required"])

    def test_implicit_tokens_are_read_from_the_fragment(self):
        session = OAuth2Session("hybrid", redirect_uri=CALLBACK, scope="openid")
        nonce = generate_token(20)
        url, state = session.create_authorization_url(
            META["authorization_endpoint"], response_type="id_token token", nonce=nonce
        )
        answer = Browser().authorize(url)
        token = session.fetch_token(authorization_response=answer, state=state)
        verified(token["id_token"], iss=ISSUER, aud="hybrid", nonce=nonce)
        told = parse_qs(urlsplit(answer).fragment)
        self.assertEqual(told["token_type"], ["Bearer"])

    def test_id_tokens_of_another_algorithm(self):
        session = self.session("signed", "signed-secret", "client_secret_basic")
        verifier = generate_token(48)
        url, state = session.create_authorization_url(
            META["authorization_endpoint"], redirect_uri=CALLBACK, scope="openid email",
            code_verifier=verifier,
        )
        token = session.fetch_token(
            META["token_endpoint"], authorization_response=Browser().authorize(url),
            redirect_uri=CALLBACK, code_verifier=verifier, state=state,
        )
        verified(token["id_token"], "PS256", aud="signed")
        info = session.get(META["userinfo_endpoint"], timeout=20)
        self.assertTrue(info.headers["content-type"].startswith("application/jwt"))
        self.assertEqual(verified(info.text, "ES256", aud="signed")["email"], "demo@example.com")


if __name__ == "__main__":
    unittest.main(warnings="ignore")
