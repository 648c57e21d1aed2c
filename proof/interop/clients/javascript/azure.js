// Azure's management SDK for JavaScript against a cloud of ours: the credential chain, creation, long operations,
// preconditions, paging, errors. Prints one JSON object with what was seen; whoever runs it looks at that.
import { ContainerServiceClient } from '@azure/arm-containerservice';
import { ResourceManagementClient } from '@azure/arm-resources';
import { ClientSecretCredential, DefaultAzureCredential } from '@azure/identity';

const { ORIGIN: origin, AZURE_SUBSCRIPTION_ID: subscription } = process.env;
const scope = `${origin}/.default`;
const authority = { authorityHost: origin, disableInstanceDiscovery: true };
const place = { endpoint: origin, credentials: { scopes: [scope] } };
const seen = {};

async function refusal(promise) {
    try {
        await promise;
    } catch (error) {
        return error;
    }
    throw new Error('nothing was refused');
}

const { AZURE_TENANT_ID: tenant, AZURE_CLIENT_ID: id } = process.env;
const wrong = new ClientSecretCredential(tenant, id, 'wrong', authority);
seen.wrong = (await refusal(wrong.getToken(scope))).message.includes('AADSTS7000215');

const credential = new DefaultAzureCredential(authority);
const resources = new ResourceManagementClient(credential, subscription, place);
const clusters = new ContainerServiceClient(credential, subscription, place);
const groups = resources.resourceGroups;

// A group is made at once; what is not there is told with its code.
seen.group = (await groups.createOrUpdate('g', { location: 'eastus' })).properties.provisioningState;
seen.missing = (await refusal(groups.get('nobody'))).code;

// A long operation ends with the resource as it is then.
const cluster = {
    location: 'eastus',
    identity: { type: 'SystemAssigned' },
    dnsPrefix: 'c',
    agentPoolProfiles: [{ name: 'p', count: 1, mode: 'System', vmSize: 'Standard_D2s_v5' }],
};
seen.cluster = (await clusters.managedClusters.createOrUpdate('g', 'c', cluster)).provisioningState;

// Two writers with one tag: the second is refused.
const ifMatch = (await clusters.agentPools.get('g', 'c', 'p')).eTag;
const wider = { count: 2, mode: 'System', vmSize: 'Standard_D2s_v5' };
await clusters.agentPools.createOrUpdate('g', 'c', 'p', wider, { ifMatch });
const change = async () => clusters.agentPools.createOrUpdate('g', 'c', 'p', wider, { ifMatch });
seen.second = (await refusal(change())).statusCode;

// Pages are followed to their end.
for (let number = 0; number < 5; number += 1) {
    await groups.createOrUpdate(`page-${number}`, { location: 'eastus' });
}
const sizes = [];
for await (const page of groups.list({ top: 2 }).byPage()) sizes.push(page.length);
seen.pages = sizes.length;
seen.groups = sizes.reduce((sum, size) => sum + size, 0);

// What Azure refuses is refused with its status.
const bad = async () => clusters.managedClusters.createOrUpdate('g', 'Bad name!', cluster);
seen.refused = (await refusal(bad())).statusCode;

for (const name of ['g', 'page-0', 'page-1', 'page-2', 'page-3', 'page-4']) {
    await groups.delete(name);
}
let left = 0;
for await (const _ of groups.list()) left += 1;
seen.left = left;
console.log(JSON.stringify(seen));
