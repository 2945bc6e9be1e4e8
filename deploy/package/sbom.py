"""Prints what the program is made of, as CycloneDX 1.5: sbom.py ARCH

The crates that the program is linked of or that its build runs, from Cargo's own
resolution; what only tests use is left out.
"""

import json
import os
import subprocess
import sys
import uuid
from datetime import datetime, timezone


def cargo(*arguments):
    command = [os.environ.get("CARGO", "cargo"), *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def checksums():
    """SHA-256 of each crate by name and version, from Cargo.lock."""
    found, package = {}, {}
    with open("Cargo.lock", encoding="utf-8") as lock:
        for line in lock:
            key, equals, value = line.strip().partition(" = ")
            if line.startswith("[["):
                package = {}
            elif equals and key in ("name", "version", "checksum"):
                package[key] = value.strip('"')
                if key == "checksum":
                    found[package["name"], package["version"]] = package["checksum"]
    return found


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, sums):
    described = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package["license"]:
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := sums.get((package["name"], package["version"])):
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def main(arch):
    target = f"{arch}-unknown-linux-gnu"
    metadata = cargo("metadata", "--format-version=1", "--locked", "--filter-platform", target)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    needs, waiting = {}, [root]
    while waiting:
        package = waiting.pop()
        if package in needs:
            continue
        used = [
            dependency["pkg"]
            for dependency in nodes[package]["deps"]
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
        ]
        needs[package] = sorted(set(used))
        waiting.extend(used)
    sums = checksums()
    program = component(packages[root], sums) | {"type": "application"}
    libraries = [component(packages[name], sums) for name in needs if name != root]
    edges = [
        {"ref": reference(packages[name]), "dependsOn": sorted(reference(packages[need]) for need in used)}
        for name, used in needs.items()
    ]
    when = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    listing = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(edges, sort_keys=True))}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(when, timezone.utc).isoformat(),
            "component": program,
        },
        "components": sorted(libraries, key=lambda library: library["bom-ref"]),
        "dependencies": sorted(edges, key=lambda edge: edge["ref"]),
    }
    print(json.dumps(listing, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
