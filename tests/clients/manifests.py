"""Checks the manifests on standard input, or a compose file, by their schemas.

manifests.py kubernetes VERSION < documents
manifests.py compose FILE
"""

import json
import sys

import yaml


def kubernetes(version):
    import kubernetes_validate

    # Kinds of the Prometheus operator: their schemas belong to no version.
    foreign = {"PodMonitor", "PrometheusRule"}
    kinds = []
    for document in yaml.safe_load_all(sys.stdin):
        if not document:
            continue
        kind = document["kind"]
        kinds.append(kind)
        if kind not in foreign:
            kubernetes_validate.validate(document, version, strict=True)
    print(" ".join(sorted(kinds)))


def compose(path):
    from compose_spec import PyCompose

    with open(path, encoding="utf-8") as file:
        # PyYAML resolves anchors and what is merged by `<<`.
        project = PyCompose.from_json(json.dumps(yaml.safe_load(file)))
    project.validate()
    print(" ".join(sorted(project.service_names())))


if __name__ == "__main__":
    {"kubernetes": kubernetes, "compose": compose}[sys.argv[1]](sys.argv[2])
