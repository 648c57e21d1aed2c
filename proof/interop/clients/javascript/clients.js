// List, watch, informer, patch and leader election with JavaScript's official client; the first surprise ends it.
import assert from 'node:assert';
import * as k8s from '@kubernetes/client-node';

const namespace = 'default';
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const coordination = config.makeApiClient(k8s.CoordinationV1Api);
const configMap = (name) => ({ metadata: { name }, data: { a: '1' } });
const create = (name) => core.createNamespacedConfigMap({ namespace, body: configMap(name) });

function within(seconds, promise, what) {
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error(`${what}: too late`)), seconds * 1000));
    return Promise.race([promise, late]);
}

async function lists() {
    await create('javascript-list');
    const { items } = await core.listNamespacedConfigMap({ namespace });
    assert(items.some((item) => item.metadata.name === 'javascript-list'));
}

async function watches() {
    const watch = new k8s.Watch(config);
    let request;
    const seen = new Promise((resolve, reject) => {
        watch.watch(`/api/v1/namespaces/${namespace}/configmaps`, {}, (type, object) => {
            if (type === 'ADDED' && object.metadata.name === 'javascript-watch') resolve();
        }, (error) => error && error.name !== 'AbortError' && reject(error)).then((started) => { request = started; });
    });
    await create('javascript-watch');
    await within(20, seen, 'watch');
    request.abort();
}

async function informs() {
    const list = () => core.listNamespacedConfigMap({ namespace });
    const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list);
    const seen = new Promise((resolve) => informer.on('add', (object) => {
        if (object.metadata.name === 'javascript-informer') resolve();
    }));
    await informer.start();
    assert(informer.get('javascript-list', namespace), 'the informer has the present');
    await create('javascript-informer');
    await within(20, seen, 'informer');
    await informer.stop();
}

async function patches() {
    const body = { data: { b: '2' } };
    const options = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
    const patched = await core.patchNamespacedConfigMap({ name: 'javascript-list', namespace, body }, options);
    assert.deepStrictEqual(patched.data, { a: '1', b: '2' });
}

// The client has no elector: a lease is taken, kept and lost by what all electors rely on, the version of the object.
async function leads() {
    const lease = (holderIdentity) => ({
        metadata: { name: 'javascript' },
        spec: { holderIdentity, leaseDurationSeconds: 15, renewTime: new k8s.V1MicroTime() },
    });
    const taken = await coordination.createNamespacedLease({ namespace, body: lease('one') });
    await assert.rejects(coordination.createNamespacedLease({ namespace, body: lease('two') }), (e) => e.code === 409);
    taken.spec.renewTime = new k8s.V1MicroTime();
    const renewed = await coordination.replaceNamespacedLease({ name: 'javascript', namespace, body: taken });
    assert.notStrictEqual(renewed.metadata.resourceVersion, taken.metadata.resourceVersion);
    await assert.rejects(
        coordination.replaceNamespacedLease({ name: 'javascript', namespace, body: taken }), (e) => e.code === 409);
}

for (const step of [lists, watches, informs, patches, leads]) {
    await step();
    console.log('passed:', step.name);
}
console.log('every step passed');
process.exit(0);
