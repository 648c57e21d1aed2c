"""Azure's own management SDK against a cloud of ours: creation, long operations, preconditions, paging, errors.

Prints one JSON object with what was seen; the test that runs it looks at that.
"""

import json
import os
import time

from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError, ResourceModifiedError, ResourceNotFoundError
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.containerservice import ContainerServiceClient
from azure.mgmt.resource.resources import ResourceManagementClient
from msal import ConfidentialClientApplication

origin = os.environ["ORIGIN"]
subscription = os.environ["AZURE_SUBSCRIPTION_ID"]


class Credential:
    """What azure-identity does, which az does not bring along."""

    def __init__(self):
        authority = f"{origin}/{os.environ['AZURE_TENANT_ID']}"
        self.application = ConfidentialClientApplication(
            os.environ["AZURE_CLIENT_ID"],
            client_credential=os.environ["AZURE_CLIENT_SECRET"],
            authority=authority,
            instance_discovery=False,
        )

    def get_token(self, *scopes, **_):
        given = self.application.acquire_token_for_client(list(scopes))
        return AccessToken(given["access_token"], int(time.time()) + given["expires_in"])


credential = Credential()
place = {"base_url": origin, "credential_scopes": [f"{origin}/.default"]}
resources = ResourceManagementClient(credential, subscription, **place)
compute = ComputeManagementClient(credential, subscription, **place)
clusters = ContainerServiceClient(credential, subscription, **place)
seen = {}

# A group is made at once; what is not there is its own type of error.
seen["group"] = resources.resource_groups.create_or_update("g", {"location": "eastus"}).properties.provisioning_state
try:
    resources.resource_groups.get("nobody")
except ResourceNotFoundError as error:
    seen["missing"] = error.error.code

# Long operations: the poller ends with the resource as it is then.
disk = {"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4}}
poller = compute.disks.begin_create_or_update("g", "d", disk)
seen["disk"] = poller.result(timeout=60).provisioning_state
cluster = {
    "location": "eastus",
    "identity": {"type": "SystemAssigned"},
    "properties": {
        "dnsPrefix": "c",
        "agentPoolProfiles": [{"name": "p", "count": 1, "mode": "System", "vmSize": "Standard_D2s_v5"}],
    },
}
made = clusters.managed_clusters.begin_create_or_update("g", "c", cluster).result(timeout=60)
seen["cluster"] = made.provisioning_state

# Two writers with one tag: the second is refused, as its own type of error.
tag = clusters.agent_pools.get("g", "c", "p").e_tag
pool = {"properties": {"count": 2, "mode": "System", "vmSize": "Standard_D2s_v5"}}
match = {"headers": {"If-Match": tag}}
clusters.agent_pools.begin_create_or_update("g", "c", "p", pool, **match).result(timeout=60)
try:
    clusters.agent_pools.begin_create_or_update("g", "c", "p", pool, **match)
except ResourceModifiedError:
    seen["second"] = 412
except HttpResponseError as error:
    seen["second"] = error.status_code

# Pages are followed to their end.
for number in range(5):
    resources.resource_groups.create_or_update(f"page-{number}", {"location": "eastus"})
pages = resources.resource_groups.list(top=2).by_page()
sizes = [len(list(page)) for page in pages]
seen["pages"] = len(sizes)
seen["groups"] = sum(sizes)

# What Azure refuses is refused with its code.
try:
    clusters.managed_clusters.begin_create_or_update("g", "Bad name!", cluster)
except HttpResponseError as error:
    seen["refused"] = error.status_code

for name in ["g", *(f"page-{number}" for number in range(5))]:
    resources.resource_groups.begin_delete(name).result(timeout=60)
seen["left"] = len(list(resources.resource_groups.list()))
print(json.dumps(seen))
