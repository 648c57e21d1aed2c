"""Azure's own management SDK against a cloud of ours: creation, long operations, preconditions, paging, errors.

Prints one JSON object with what was seen; the test that runs it looks at that.
"""

import base64
import json
import os
import ssl
import urllib.parse
import urllib.request

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.identity import (
    ClientSecretCredential,
    DefaultAzureCredential,
    DeviceCodeCredential,
    WorkloadIdentityCredential,
)
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.containerservice import ContainerServiceClient
from azure.mgmt.msi import ManagedServiceIdentityClient
from azure.mgmt.resource.resources import ResourceManagementClient

origin = os.environ["ORIGIN"]
tenant, subscription = os.environ["AZURE_TENANT_ID"], os.environ["AZURE_SUBSCRIPTION_ID"]
client, secret = os.environ["AZURE_CLIENT_ID"], os.environ["AZURE_CLIENT_SECRET"]
scope = f"{origin}/.default"
authority = {"authority": origin, "disable_instance_discovery": True}
place = {"base_url": origin, "credential_scopes": [scope]}
seen = {}

# A wrong secret is its own type of error; the chain finds the right one in the environment.
try:
    ClientSecretCredential(tenant, client, "wrong", **authority).get_token(scope)
except ClientAuthenticationError as error:
    seen["wrong"] = "AADSTS7000215" in error.message
credential = DefaultAzureCredential(**authority)
resources = ResourceManagementClient(credential, subscription, **place)
compute = ComputeManagementClient(credential, subscription, **place)
clusters = ContainerServiceClient(credential, subscription, **place)
identities = ManagedServiceIdentityClient(credential, subscription, **place)



def confirm(address, code, _):
    """What a person does who is shown a code."""
    person = {"code": code, "username": os.environ["USERNAME"], "password": os.environ["PASSWORD"]}
    trust = ssl.create_default_context(cafile=os.environ["REQUESTS_CA_BUNDLE"])
    urllib.request.urlopen(address, urllib.parse.urlencode(person).encode(), context=trust).close()


# A person signs in with a code.
AZ = "04b07795-8ddb-461a-bbee-02f9e1bf7b46"
seen["person"] = bool(DeviceCodeCredential(AZ, tenant_id=tenant, prompt_callback=confirm, **authority).get_token(scope))

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

# An identity takes another's token for its own where a federated credential says so, and for no other subject.
robot = identities.user_assigned_identities.create_or_update("g", "i", {"location": "eastus"})
exchange = ClientSecretCredential(tenant, client, secret, **authority).get_token("api://AzureADTokenExchange/.default")
claims = json.loads(base64.urlsafe_b64decode(exchange.token.split(".")[1] + "=="))


def federated(subject):
    """Whether the identity takes the token when this is the subject it is to have."""
    trusted = {"properties": {"issuer": claims["iss"], "subject": subject, "audiences": [claims["aud"]]}}
    identities.federated_identity_credentials.create_or_update("g", "i", "f", trusted)
    with open(os.path.join(os.environ["HOME"], "assertion"), "w", encoding="utf-8") as file:
        file.write(exchange.token)
    asks = WorkloadIdentityCredential(tenant_id=tenant, client_id=robot.client_id, token_file_path=file.name, **authority)
    try:
        return bool(asks.get_token(scope).token)
    except ClientAuthenticationError as error:
        return "AADSTS70021" in error.message


seen["other subject"] = federated("somebody else")
seen["federated"] = federated(claims["sub"])

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
