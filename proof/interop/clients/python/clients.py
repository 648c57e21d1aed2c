"""List, watch, informer, patch and leader election with Python's official client; the first surprise ends it."""

import os
import threading
import time
import uuid

from kubernetes import client, config, watch
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock

NAMESPACE = "default"


def config_map(name):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data={"a": "1"})


def lists(core):
    core.create_namespaced_config_map(NAMESPACE, config_map("python-list"))
    names = [item.metadata.name for item in core.list_namespaced_config_map(NAMESPACE, limit=1).items]
    assert len(names) == 1, names
    names = [item.metadata.name for item in core.list_namespaced_config_map(NAMESPACE).items]
    assert "python-list" in names, names


def watches(core):
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.create_namespaced_config_map(NAMESPACE, config_map("python-watch"))
    stream = watch.Watch()
    events = stream.stream(core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=20)
    for event in events:
        if event["type"] == "ADDED" and event["object"].metadata.name == "python-watch":
            stream.stop()
            return
    raise AssertionError("the watch did not bring the object")


def informs(core):
    """What every informer does: list, then follow, keeping a store up to date."""
    store, seen = {}, threading.Event()
    listed = core.list_namespaced_config_map(NAMESPACE)
    for item in listed.items:
        store[item.metadata.name] = item

    def follow():
        stream = watch.Watch()
        version = listed.metadata.resource_version
        for event in stream.stream(
            core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=30,
            allow_watch_bookmarks=True,
        ):
            if event["type"] == "BOOKMARK":
                continue
            name = event["object"].metadata.name
            if event["type"] == "DELETED":
                store.pop(name, None)
            else:
                store[name] = event["object"]
            if name == "python-informer" and event["type"] == "DELETED":
                seen.set()
                return

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    core.create_namespaced_config_map(NAMESPACE, config_map("python-informer"))
    core.delete_namespaced_config_map("python-informer", NAMESPACE)
    assert seen.wait(20), "the store did not follow"
    assert "python-list" in store and "python-informer" not in store, sorted(store)


def patches(core):
    patched = core.patch_namespaced_config_map("python-list", NAMESPACE, {"data": {"b": "2"}})
    assert patched.data == {"a": "1", "b": "2"}, patched.data
    steps = [{"op": "remove", "path": "/data/a"}]
    patched = core.patch_namespaced_config_map("python-list", NAMESPACE, steps)
    assert patched.data == {"b": "2"}, patched.data


def leads(core):
    identity, led = str(uuid.uuid4()), threading.Event()
    settings = electionconfig.Config(
        ConfigMapLock("python-leader", NAMESPACE, identity),
        lease_duration=15, renew_deadline=10, retry_period=1,
        onstarted_leading=led.set, onstopped_leading=lambda: None,
    )
    threading.Thread(target=leaderelection.LeaderElection(settings).run, daemon=True).start()
    assert led.wait(20), "nobody leads"
    end = time.monotonic() + 20
    while time.monotonic() < end:
        record = core.read_namespaced_config_map("python-leader", NAMESPACE).metadata.annotations
        if identity in (record or {}).get("control-plane.alpha.kubernetes.io/leader", ""):
            return
        time.sleep(0.05)
    raise AssertionError("the lock does not name its holder")


def main():
    config.load_kube_config()
    core = client.CoreV1Api()
    assert client.VersionApi().get_code().major == "1"
    for step in (lists, watches, informs, patches, leads):
        step(core)
        print("passed:", step.__name__, flush=True)
    print("every step passed", flush=True)
    # The elector's thread has no end; at the interpreter's it would be in the way.
    os._exit(0)


main()
