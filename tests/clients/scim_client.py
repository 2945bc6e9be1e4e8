"""SCIM's endpoints, judged by testers of others.

They speak the standard and nothing else, so they are let loose on the prefix
that does as well. Every check runs; what can't be as one of them wants it is
listed in TOLD, with why, and must fail in the very way.
"""

import json
import os
import subprocess
import sys
import unittest

import requests
from httpx2 import Client
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

BASE = os.environ["DOORWARD_BASE"]
CA = os.environ["REQUESTS_CA_BUNDLE"]
SCIM = f"{BASE}/scim/v2"

# It adds a member that is no user of anybody's, and wants that to succeed. We
# refuse members that do not exist; the tester itself says to document that.
TOLD = {"PATCH /Groups/{id} add member": "Expected 200, got 400"}


def token():
    answer = requests.post(
        f"{BASE}/oauth2/access_token",
        data={
            "grant_type": "client_credentials",
            "client_id": "provisioning",
            "client_secret": "provisioning-secret",
            "scope": "scim:write",
        },
        timeout=20,
    )
    answer.raise_for_status()
    return answer.json()["access_token"]


class Testers(unittest.TestCase):
    def test_scim2_tester_finds_nothing(self):
        http = Client(
            base_url=SCIM,
            headers={"authorization": f"Bearer {token()}"},
            verify=CA,
        )
        results = check_server(SyncSCIMClient(http))
        good = {Status.SUCCESS, Status.COMPLIANT}
        wrong = [one for one in results if one.status not in good]
        for one in wrong:
            print(one.status, one.title, one.reason)
        self.assertGreater(len(results), 100)
        self.assertEqual(wrong, [])

    def test_scim_sanity_finds_nothing(self):
        command = [sys.executable, "-m", "scim_sanity", "probe", SCIM]
        command += ["--token", token(), "--strict", "--i-accept-side-effects"]
        command += ["--ca-bundle", CA, "--json-output"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        report = json.loads(done.stdout)
        results = report["results"]
        failed = {
            one["name"]: one["message"]
            for one in results
            if one["status"].upper() not in ("PASS", "SKIP")
        }
        self.assertGreater(len(results), 25)
        self.assertEqual(failed, TOLD)


if __name__ == "__main__":
    unittest.main()
