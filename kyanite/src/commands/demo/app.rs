//! The application of `kyanite demo`, and what happens to it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ::machines::{Driver as _, PowerOff, State};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Seen;
use crate::admin;
use crate::cli::Place;
use crate::client::Client;
use crate::commands::machine;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::manifest;
use crate::printer::Printer;

const MANIFEST: &str = include_str!("app.yaml");
const NAMESPACE: &str = "kyanite-demo";
/// How long anything may take: a lost node is noticed after a minute.
const PATIENCE: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many lines of a log are shown.
const LINES: usize = 3;

/// The application in a cluster.
pub(super) struct App {
    client: Client,
    dir: DataDir,
    place: Place,
}

impl App {
    pub(super) async fn open(place: &Place) -> Result<App> {
        let dir = DataDir::find(place)?;
        Ok(App {
            client: Client::of_running(&dir).await?,
            dir,
            place: place.clone(),
        })
    }

    /// Makes it, or makes it again as it was at first.
    pub(super) async fn deploy(&self) -> Result<String> {
        for object in manifest::objects("the demo", MANIFEST)? {
            self.apply_when_possible(&object).await?;
        }
        self.settled("visitor", 1, 1).await?;
        let pods = self.settled("web", 3, 1).await?;
        Ok(format!("3 pods are ready on {}", nodes_in_words(&pods)))
    }

    // A namespace of an earlier run may still be ending.
    async fn apply_when_possible(&self, object: &Value) -> Result<()> {
        let path = manifest::path_of(object)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.client.apply(&path, object).await {
                Err(failure) if failure.code == Code::Permission && Instant::now() < deadline => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                other => return other.map(drop),
            }
        }
    }

    pub(super) async fn logs(&self, printer: &Printer) -> Result<Seen> {
        if !self.has_machines()? {
            return Ok(Err("nodes on paper write nothing".to_owned()));
        }
        let pod = self.pod("web").await?;
        let log = self.log(&pod).await?;
        let lines: Vec<&str> = log.lines().take(LINES).collect();
        printer.note(&format!("    {}", lines.join("\n    ")));
        Ok(Ok(format!("the first lines of {pod}")))
    }

    pub(super) async fn exec(&self, printer: &Printer) -> Result<Seen> {
        if !self.has_machines()? {
            return Ok(Err("nodes on paper run nothing".to_owned()));
        }
        let Some(kubectl) = kubectl() else {
            return Ok(Err("kubectl is not on the PATH".to_owned()));
        };
        let mut command = Command::new(kubectl);
        command
            .arg("--kubeconfig")
            .arg(self.dir.kubeconfig())
            .args(["exec", "-n", NAMESPACE, "deployment/web", "--"])
            .args(["/demo", "get", "http://web/"]);
        let output = command
            .output()
            .map_err(|e| Failure::new(Code::Failure, format!("kubectl cannot be run: {e}")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if !output.status.success() {
            let what = format!("kubectl exec failed: {}", text(&output.stderr));
            return Err(
                Failure::new(Code::Failure, what).hint("`kyanite doctor` looks for the cause")
            );
        }
        printer.note(&format!("    {}", text(&output.stdout)));
        Ok(Ok("a pod has asked, a pod has answered".to_owned()))
    }

    pub(super) async fn scale(&self) -> Result<String> {
        self.change(|web| web["spec"]["replicas"] = json!(5))
            .await?;
        let pods = self.settled("web", 5, 1).await?;
        Ok(format!("5 pods are ready on {}", nodes_in_words(&pods)))
    }

    /// What the visitor counts on the way must not go wrong once.
    pub(super) async fn update(&self) -> Result<Seen> {
        let has_machines = self.has_machines()?;
        let before = self.visits(has_machines).await?;
        self.change(|web| {
            web["spec"]["replicas"] = json!(5);
            web["spec"]["template"]["spec"]["containers"][0]["image"] =
                json!("kyanite.local/demo:2");
        })
        .await?;
        self.settled("web", 5, 2).await?;
        if !has_machines {
            return Ok(Ok("all pods have version 2, on paper".to_owned()));
        }
        // What was under way is counted a second later.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = self.visits(true).await?;
        let (answered, failed) = (after.0 - before.0, after.1 - before.1);
        match failed {
            0 => Ok(Ok(format!("{answered} requests meanwhile, none dropped"))),
            failed => Err(Failure::new(
                Code::Failure,
                format!("{failed} of {} requests were dropped", answered + failed),
            )
            .hint(format!(
                "`kubectl logs -n {NAMESPACE} deployment/visitor` says how"
            ))),
        }
    }

    /// Pulls the plug of a machine with pods of ours, and brings it back.
    pub(super) async fn lose_a_node(&self, printer: &Printer) -> Result<Seen> {
        let visitor = self.pods("visitor").await?;
        let spared = visitor.first().map(node_of).unwrap_or_default();
        let pods = self.pods("web").await?;
        let driver = machine::driver(&self.place)?;
        let running = driver
            .list()?
            .into_iter()
            .filter(|m| m.state == State::Running);
        let machines: Vec<String> = running.map(|machine| machine.name).collect();
        let victim = machines
            .iter()
            .filter(|name| **name != spared)
            .find(|name| pods.iter().any(|pod| node_of(pod) == **name));
        let Some(victim) = victim else {
            return Ok(Err("it takes two nodes that are machines".to_owned()));
        };
        driver.power_off(victim, PowerOff::Plug)?;
        printer.note(&format!("    {victim} is off"));
        let away = |pods: &[Value]| {
            let elsewhere = pods.iter().filter(|pod| node_of(pod) != *victim);
            elsewhere.filter(|pod| is_ready(pod)).count() >= 5.min(pods.len())
        };
        self.until("pods run elsewhere", "web", away).await?;
        printer.note("    its pods run elsewhere; it gets its power back");
        let question = json!({"ask": "repair"});
        let socket = self.dir.socket();
        let repaired =
            tokio::task::spawn_blocking(move || admin::ask_patiently(&socket, &question, PATIENCE));
        let broke_off = |e| Failure::new(Code::Failure, format!("the repair broke off: {e}"));
        repaired.await.map_err(broke_off)??;
        Ok(Ok(format!(
            "{victim} was lost and is Ready again; no pod was missed for long"
        )))
    }

    pub(super) async fn clean_up(&self) -> Result<String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}");
        self.client.delete(&path).await?;
        let deadline = Instant::now() + PATIENCE;
        while self.client.get(&path).await.is_ok() {
            late(deadline, "the namespace goes")?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok("nothing is left of it".to_owned())
    }

    fn has_machines(&self) -> Result<bool> {
        let directory = self.dir.path().join("machines");
        Ok(directory.exists() && !machine::driver(&self.place)?.list()?.is_empty())
    }

    // As it was made, but for this.
    async fn change(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut all = manifest::objects("the demo", MANIFEST)?.into_iter();
        let is_web =
            |object: &Value| object["kind"] == "Deployment" && object["metadata"]["name"] == "web";
        let mut web = all.find(is_web).unwrap_or_default();
        change(&mut web);
        self.client
            .apply(&manifest::path_of(&web)?, &web)
            .await
            .map(drop)
    }

    async fn pods(&self, app: &str) -> Result<Vec<Value>> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{app}");
        let list = self.client.get(&path).await?;
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let stays = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_null();
        Ok(pods.into_iter().filter(stays).collect())
    }

    async fn pod(&self, app: &str) -> Result<String> {
        let pods = self.pods(app).await?;
        let ready = pods.iter().find(|pod| is_ready(pod));
        let name = ready.and_then(|pod| pod["metadata"]["name"].as_str());
        name.map(str::to_owned).ok_or_else(|| {
            Failure::new(Code::NotFound, format!("no pod of `{app}` is ready"))
                .hint("the step `app` makes them")
        })
    }

    async fn log(&self, pod: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/log");
        self.client.get_text(&path).await
    }

    /// How many requests of the visitor's were answered, and how many were not.
    async fn visits(&self, has_machines: bool) -> Result<(u64, u64)> {
        match has_machines {
            false => Ok((0, 0)),
            true => Ok(counted(&self.log(&self.pod("visitor").await?).await?)),
        }
    }

    /// Waits until there are exactly this many pods of this version, all of them ready.
    async fn settled(&self, app: &str, count: usize, version: u8) -> Result<Vec<Value>> {
        let image = format!("kyanite.local/demo:{version}");
        let is_done = |pods: &[Value]| {
            let fits =
                |pod: &&Value| is_ready(pod) && pod["spec"]["containers"][0]["image"] == *image;
            pods.len() == count && pods.iter().filter(fits).count() == count
        };
        self.until("its pods are ready", app, is_done).await
    }

    async fn until(
        &self,
        what: &str,
        app: &str,
        is_done: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pods = self.pods(app).await?;
            if is_done(&pods) {
                return Ok(pods);
            }
            late(deadline, what)?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn late(deadline: Instant, what: &str) -> Result<()> {
    match Instant::now() < deadline {
        true => Ok(()),
        false => Err(
            Failure::new(Code::Unavailable, format!("not in time: {what}"))
                .hint("`kyanite doctor` looks for the cause"),
        ),
    }
}

fn node_of(pod: &Value) -> String {
    pod["spec"]["nodeName"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn nodes_in_words(pods: &[Value]) -> String {
    let mut nodes: Vec<String> = pods.iter().map(node_of).collect();
    nodes.sort();
    nodes.dedup();
    match nodes.len() {
        1 => "one node".to_owned(),
        many => format!("{many} nodes"),
    }
}

/// The last count in the visitor's log.
fn counted(log: &str) -> (u64, u64) {
    let mut last = log.lines().rev().filter_map(|line| {
        let (answered, failed) = line.strip_prefix("answered ")?.split_once(" failed ")?;
        Some((answered.parse().ok()?, failed.parse().ok()?))
    });
    last.next().unwrap_or_default()
}

// As people have it, or as `scripts/setup` brought it.
fn kubectl() -> Option<PathBuf> {
    let named = std::env::var_os("KUBECTL").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|dir| dir.join("kubectl"))
        .collect();
    named.into_iter().chain(on_path).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_visitors_last_count_is_read_from_its_log() {
        let log =
            "answered 10 failed 0\nfailed: answered nothing\nanswered 55 failed 1\nanswered 6";
        assert_eq!(counted(log), (55, 1));
        assert_eq!(counted("listening"), (0, 0));
    }

    #[test]
    fn nodes_are_counted_once() {
        let pod = |node: &str| json!({"spec": {"nodeName": node}});
        assert_eq!(nodes_in_words(&[pod("a"), pod("a")]), "one node");
        assert_eq!(nodes_in_words(&[pod("a"), pod("b")]), "2 nodes");
    }
}
