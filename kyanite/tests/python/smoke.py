"""What a Python program does with a cluster, step by step; the first surprise ends it with a traceback."""

import threading

from kubernetes import client, config, watch

NAMESPACE = "python"


def create_and_read(core):
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="settings"), data={"colour": "red"})
    created = core.create_namespaced_config_map(NAMESPACE, body)
    assert created.metadata.uid and created.metadata.resource_version, created
    assert core.read_namespaced_config_map("settings", NAMESPACE).data == {"colour": "red"}


def conflict_is_reported(core):
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="settings"))
    try:
        core.create_namespaced_config_map(NAMESPACE, body)
    except client.ApiException as refusal:
        assert refusal.status == 409 and "AlreadyExists" in refusal.body, refusal
    else:
        raise AssertionError("created twice")


def patch_and_replace(core):
    patched = core.patch_namespaced_config_map("settings", NAMESPACE, {"data": {"size": "large"}})
    assert patched.data == {"colour": "red", "size": "large"}, patched.data
    patched.data = {"only": "this"}
    replaced = core.replace_namespaced_config_map("settings", NAMESPACE, patched)
    assert replaced.data == {"only": "this"}, replaced.data
    try:
        core.replace_namespaced_config_map("settings", NAMESPACE, patched)
    except client.ApiException as refusal:
        assert refusal.status == 409 and '"reason":"Conflict"' in refusal.body, refusal
    else:
        raise AssertionError("an old resource version was taken")


def watch_sees_changes(core):
    listed = core.list_namespaced_config_map(NAMESPACE)

    def change():
        meta = client.V1ObjectMeta(name="watched")
        core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=meta))
        core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"a": "b"}})
        core.delete_namespaced_config_map("watched", NAMESPACE)

    writer = threading.Thread(target=change)
    writer.start()
    seen = []
    version = listed.metadata.resource_version
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=30
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            stream.stop()
    writer.join()
    assert seen == [("ADDED", "watched"), ("MODIFIED", "watched"), ("DELETED", "watched")], seen


def deployment_round_trip(apps):
    container = client.V1Container(name="main", image="registry.example/main:1")
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": "main"}), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(
        replicas=2, selector=client.V1LabelSelector(match_labels={"app": "main"}), template=template
    )
    body = client.V1Deployment(metadata=client.V1ObjectMeta(name="main"), spec=spec)
    created = apps.create_namespaced_deployment(NAMESPACE, body)
    assert created.spec.strategy.type == "RollingUpdate", created.spec
    scaled = apps.patch_namespaced_deployment_scale("main", NAMESPACE, {"spec": {"replicas": 5}})
    assert scaled.spec.replicas == 5, scaled
    assert apps.read_namespaced_deployment("main", NAMESPACE).spec.replicas == 5


def pages_are_followed(core):
    for number in range(7):
        meta = client.V1ObjectMeta(name=f"page-{number}", labels={"paged": "yes"})
        core.create_namespaced_secret(NAMESPACE, client.V1Secret(metadata=meta))
    names, token = [], None
    while token != "":
        arguments = {"limit": 3, "label_selector": "paged=yes"} | ({"_continue": token} if token else {})
        page = core.list_namespaced_secret(NAMESPACE, **arguments)
        assert len(page.items) <= 3
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue or ""
    assert names == [f"page-{number}" for number in range(7)], names


def delete_collection(core):
    core.delete_collection_namespaced_secret(NAMESPACE, label_selector="paged=yes")
    assert core.list_namespaced_secret(NAMESPACE, label_selector="paged=yes").items == []


def main():
    config.load_kube_config()
    core, apps = client.CoreV1Api(), client.AppsV1Api()
    create_and_read(core)
    conflict_is_reported(core)
    patch_and_replace(core)
    watch_sees_changes(core)
    deployment_round_trip(apps)
    pages_are_followed(core)
    delete_collection(core)
    print("every step passed")


if __name__ == "__main__":
    main()
