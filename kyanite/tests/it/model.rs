//! Random operations by several clients, compared with a plain in-memory model.
//!
//! Each client has a namespace of its own, where the model knows every answer exactly; a shared
//! namespace is for what only contention shows. Both run on the embedded store and on etcd.

mod contention;
mod namespace;
mod operations;
mod reads;

use crate::harness::{Etcd, Pki, Random, Replica, Server};
use operations::Client;

const CLIENTS: usize = 4;
const OPERATIONS_PER_CLIENT: usize = 150;

/// Everything, on a server of any kind.
async fn behaves_like_the_model(client: &kube::Client) {
    let mut random = Random::seeded();
    let clients = (0..CLIENTS).map(|number| {
        let (client, random) = (client.clone(), random.split());
        async move {
            let namespace = format!("model-{number}");
            let mut client = Client::start(client, &namespace, random).await;
            for _ in 0..OPERATIONS_PER_CLIENT {
                client.step().await;
            }
        }
    });
    let alone = futures::future::join_all(clients);
    futures::future::join(alone, contention::run(client)).await;
}

#[test]
fn the_embedded_store_behaves_like_the_model() {
    let server = Server::start_alone();
    let client = server.client();
    server.block_on(behaves_like_the_model(&client));
}

#[tokio::test]
async fn etcd_behaves_like_the_model() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let replica = Replica::start(&etcd, &Pki::new()).await;
    behaves_like_the_model(&replica.client).await;
}
