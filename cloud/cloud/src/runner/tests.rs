use std::sync::Mutex as StdMutex;

use async_trait::async_trait;
use bytes::Bytes;
use clock::Clock;
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::*;
use crate::arena::{OWNER, SUBSCRIPTION, caller};
use crate::arm::{self, access, document};
use crate::books::Books;
use crate::entra::token::Keys;
use crate::exchange::Asked;
use crate::region::{Region, Task};
use crate::settings::Settings;

const NETWORKS: &str = "Microsoft.Network/virtualNetworks";
const NETWORK: &str = "/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v";

/// A region that has something behind networks, carries out orders when it is let, and remembers them.
#[derive(Debug)]
struct Scripted {
    orders: StdMutex<Vec<(String, Task)>>,
    known: StdMutex<Vec<String>>,
    let_through: Semaphore,
    trouble: Option<Trouble>,
}

impl Scripted {
    fn new(let_through: usize, trouble: Option<Trouble>) -> Arc<Scripted> {
        Arc::new(Scripted {
            orders: StdMutex::default(),
            known: StdMutex::default(),
            let_through: Semaphore::new(let_through),
            trouble,
        })
    }

    fn tasks(&self) -> Vec<Task> {
        let orders = self.orders.lock().unwrap();
        orders.iter().map(|(_, task)| task.clone()).collect()
    }
}

#[async_trait]
impl Region for Scripted {
    fn has(&self, kind: &str) -> bool {
        kind == NETWORKS
    }

    async fn clear(&self, known: &[Order]) {
        self.known
            .lock()
            .unwrap()
            .extend(known.iter().map(|order| order.id.clone()));
    }

    async fn carry_out(&self, order: Order) -> Result<Done, Trouble> {
        self.orders
            .lock()
            .unwrap()
            .push((order.id.clone(), order.task.clone()));
        self.let_through.acquire().await.unwrap().forget();
        match &self.trouble {
            Some(trouble) => Err(trouble.clone()),
            None => Ok(Done {
                body: json!({"tags": {"stands": "here"}}),
                ..Done::default()
            }),
        }
    }
}

async fn door(directory: &std::path::Path, key: &str, region: Arc<dyn Region>) -> Arc<Door> {
    let books = Books::open(directory).await.unwrap();
    let settings = Settings {
        region,
        ..Settings::for_tests()
    };
    let keys = Keys::read(key).unwrap();
    Arc::new(Door::new(books, settings, keys, Clock::system()))
}

async fn ask(door: &Door, method: Method, path: &str, body: Value) -> u16 {
    let target = format!("{SUBSCRIPTION}{path}?api-version=2025-01-01");
    let body = Bytes::from(body.to_string());
    let asked = Asked::new(method, &target, HeaderMap::new(), body);
    let caller = caller("me");
    let reply = door.decide(|turn| arm::answer(turn, &caller, &asked)).await;
    reply.unwrap().status.as_u16()
}

/// A group with a network in it, as a client makes them.
async fn make_network(door: &Door) {
    door.decide(|turn| access::grant(turn, "me", "/a", SUBSCRIPTION, OWNER))
        .await
        .unwrap();
    let group = json!({"location": "eastus"});
    assert_eq!(
        ask(door, Method::PUT, "/resourcegroups/g", group).await,
        201
    );
    let body = json!({"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}});
    assert_eq!(ask(door, Method::PUT, NETWORK, body).await, 201);
}

fn network(door: &Door) -> Option<document::Document> {
    door.look(|turn| document::get(turn, &format!("{SUBSCRIPTION}{NETWORK}")))
}

fn state(door: &Door) -> String {
    network(door).map_or_else(|| "gone".to_owned(), |found| found.state().to_owned())
}

/// Waits until something is so.
async fn until(what: impl Fn() -> bool) {
    let waiting = async {
        while !what() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap();
}

struct Running(watch::Sender<bool>, tokio::task::JoinHandle<()>);

impl Running {
    fn of(door: &Arc<Door>) -> Running {
        let (stop, stopped) = watch::channel(false);
        Running(stop, tokio::spawn(run(Arc::clone(door), stopped)))
    }

    async fn end(self) {
        self.0.send(true).unwrap();
        self.1.await.unwrap();
    }
}

#[tokio::test]
async fn an_operation_that_a_crash_interrupted_comes_to_its_end_after_the_restart() {
    let (dir, key) = (tempfile::tempdir().unwrap(), Keys::generate().unwrap());
    let hollow = || Arc::new(crate::region::Hollow);
    {
        // Nobody runs operations here: as if the process had ended the moment it answered.
        let door = door(dir.path(), &key, hollow()).await;
        make_network(&door).await;
    }
    let door = door(dir.path(), &key, hollow()).await;
    assert_eq!(state(&door), "Updating");
    let running = Running::of(&door);
    until(|| state(&door) == "Succeeded").await;
    running.end().await;
}

#[tokio::test]
async fn an_operation_ends_when_its_order_is_carried_out() {
    let (dir, key) = (tempfile::tempdir().unwrap(), Keys::generate().unwrap());
    let region = Scripted::new(0, None);
    let door = door(dir.path(), &key, region.clone()).await;
    let running = Running::of(&door);
    make_network(&door).await;
    until(|| !region.tasks().is_empty()).await;
    assert_eq!(state(&door), "Updating");
    region.let_through.add_permits(1);
    until(|| state(&door) == "Succeeded").await;
    assert_eq!(network(&door).unwrap().body["tags"]["stands"], "here");
    assert_eq!(region.tasks(), [Task::Bring]);
    // A group goes when what stands behind its resources is gone.
    assert_eq!(
        ask(&door, Method::DELETE, "/resourcegroups/g", Value::Null).await,
        202
    );
    until(|| region.tasks() == [Task::Bring, Task::Remove]).await;
    assert!(network(&door).is_some());
    region.let_through.add_permits(1);
    until(|| network(&door).is_none()).await;
    running.end().await;
}

#[tokio::test]
async fn an_order_that_goes_wrong_fails_its_operation_and_says_why() {
    let (dir, key) = (tempfile::tempdir().unwrap(), Keys::generate().unwrap());
    let region = Scripted::new(1, Some(Trouble::new("AllocationFailed", "no room")));
    let door = door(dir.path(), &key, region).await;
    let running = Running::of(&door);
    make_network(&door).await;
    let operation = || door.books.under("op/").pop().unwrap().1;
    until(|| operation()["status"] == "Failed").await;
    let error = json!({"code": "AllocationFailed", "message": "no room"});
    assert_eq!(operation()["error"], error);
    // Who has seen the end of an operation finds its resource as it ended.
    let properties = &network(&door).unwrap().body["properties"];
    assert_eq!(properties["provisioningState"], "Failed");
    assert_eq!(properties["status"]["provisioningError"], error);
    running.end().await;
}

#[tokio::test]
async fn a_removal_takes_the_place_of_an_order_under_way() {
    let (dir, key) = (tempfile::tempdir().unwrap(), Keys::generate().unwrap());
    let region = Scripted::new(0, None);
    let door = door(dir.path(), &key, region.clone()).await;
    let running = Running::of(&door);
    make_network(&door).await;
    until(|| region.tasks() == [Task::Bring]).await;
    assert_eq!(ask(&door, Method::DELETE, NETWORK, Value::Null).await, 202);
    // The first order is dropped: one permit is enough for the second.
    until(|| region.tasks() == [Task::Bring, Task::Remove]).await;
    region.let_through.add_permits(1);
    until(|| state(&door) == "gone").await;
    running.end().await;
}

#[tokio::test]
async fn after_a_restart_what_should_stand_is_ordered_again_and_everything_known_is_named() {
    let (dir, key) = (tempfile::tempdir().unwrap(), Keys::generate().unwrap());
    {
        let region = Scripted::new(1, None);
        let door = door(dir.path(), &key, region).await;
        let running = Running::of(&door);
        make_network(&door).await;
        until(|| state(&door) == "Succeeded").await;
        running.end().await;
        door.books.close();
    }
    let region = Scripted::new(1, None);
    let door = door(dir.path(), &key, region.clone()).await;
    let running = Running::of(&door);
    until(|| region.tasks() == [Task::Bring]).await;
    assert_eq!(region.known.lock().unwrap().len(), 1);
    running.end().await;
}
