//! An Azure of a test's own: `kyanite cloud` in a process, and Resource Manager as its owner sees it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use azure::{Arm, CloudConfig};
use serde_json::{Value, json};

use super::{KYANITE, Process, eventually};

/// The group that tests put things into.
pub(crate) const GROUP: &str = "g";

/// A running cloud.
pub(crate) struct Azure {
    // Behind a lock, so that who kills it need not be the only one who knows it.
    process: std::sync::Mutex<Option<Process>>,
    runtime: tokio::runtime::Runtime,
    arm: Arm,
    known: Value,
    // Last, so that the files outlive the process.
    home: tempfile::TempDir,
}

impl Azure {
    /// Starts a cloud in which nothing takes time, with an empty group.
    pub(crate) fn start() -> Azure {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let process = spawn(home.path(), "0");
        let known = eventually("the cloud says where it is", || {
            let text = std::fs::read_to_string(home.path().join("azure/kyanite.json"));
            let text = text.map_err(|e| e.to_string())?;
            serde_json::from_str::<Value>(&text).map_err(|e| e.to_string())
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let config = CloudConfig::parse(&settings(&known).to_string(), |_| None).expect("settings");
        let authority = std::fs::read(home.path().join("pki/ca.crt")).expect("the cloud's CA");
        let tls = wire::https::tls(Some(&authority)).expect("a client");
        let client = Arc::new(wire::client::Client::new(tls, Duration::from_secs(60)));
        let arm = eventually("the cloud answers", || {
            let connected = Arm::connect(&config, Arc::clone(&client), |_| None);
            runtime.block_on(connected).map_err(|e| e.to_string())
        });
        let azure = Azure {
            process: std::sync::Mutex::new(Some(process)),
            runtime,
            arm,
            known,
            home,
        };
        azure.put_at(&azure.group_id(), json!({"location": "eastus"}));
        azure
    }

    /// Kills the cloud without a word.
    pub(crate) fn kill(&self) {
        *self.process.lock().unwrap() = None;
    }

    /// Starts it again where it was.
    pub(crate) fn start_again(&self) {
        let origin = self.known["origin"].as_str().unwrap_or_default();
        let port = origin.rsplit(':').next().unwrap_or("0");
        *self.process.lock().unwrap() = Some(spawn(self.home.path(), port));
    }

    /// Everything in the subscription: id and state.
    pub(crate) fn states(&self) -> Result<Vec<(String, String)>, String> {
        let subscription = self.known["credentials"]["subscription"].as_str();
        let subscription = subscription.expect("credentials name a subscription");
        let (path, more) = (
            format!("/subscriptions/{subscription}/resources"),
            "$expand=provisioningState",
        );
        let got = self.runtime.block_on(self.arm.list::<Value>(&path, more));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = got.map_err(|e| e.to_string())?.into_iter();
        Ok(all
            .map(|one| (text(&one["id"]), text(&one["provisioningState"])))
            .collect())
    }

    /// What was written so far, newest first: the activity log.
    pub(crate) fn writes(&self) -> Vec<Value> {
        let subscription = self.known["credentials"]["subscription"].as_str();
        let subscription = subscription.expect("credentials name a subscription");
        let path = format!(
            "/subscriptions/{subscription}/providers/Microsoft.Insights/eventtypes/management/values"
        );
        let got = self.runtime.block_on(self.arm.list(&path, ""));
        got.unwrap_or_else(|error| panic!("{error}"))
    }

    /// A flexible scale set of one machine; gives the machine's name.
    pub(crate) fn make_flexible_set(&self, name: &str) -> String {
        let path = format!("Microsoft.Compute/virtualMachineScaleSets/{name}");
        let body = json!({"location": "eastus", "properties": {"orchestrationMode": "Flexible", "platformFaultDomainCount": 1}});
        self.put(&path, body);
        let card = format!("Microsoft.Network/networkInterfaces/{name}-card");
        self.put(
            &card,
            json!({"location": "eastus", "properties": {"ipConfigurations": self.address()}}),
        );
        let machine = format!("{name}_0");
        let computer = format!("{name}000000");
        let body = json!({"location": "eastus", "properties": {"hardwareProfile": {"vmSize": "Standard_D2s_v5"},
            "virtualMachineScaleSet": {"id": self.id(&path)}, "osProfile": {"computerName": computer, "adminUsername": "u"},
            "networkProfile": {"networkInterfaces": [{"id": self.id(&card), "properties": {"primary": true}}]}}});
        self.put(
            &format!("Microsoft.Compute/virtualMachines/{machine}"),
            body,
        );
        computer
    }

    /// Writes a resource of the group, as far as the cloud lives.
    pub(crate) fn try_put(&self, path: &str, body: &Value) -> Result<Value, String> {
        let id = self.id(path);
        let put = self.runtime.block_on(self.arm.put(&id, body, ""));
        put.map_err(|e| e.to_string())
    }

    /// azure.json with this in it, in a file.
    pub(crate) fn cloud_config(&self, more: Value) -> PathBuf {
        let mut config = settings(&self.known);
        for (name, value) in more.as_object().into_iter().flatten() {
            config[name] = value.clone();
        }
        let path = self.home.path().join("azure.json");
        std::fs::write(&path, config.to_string()).expect("it can be written");
        path
    }

    /// Where it is, and the credentials of its owner.
    pub(crate) fn known(&self) -> &Value {
        &self.known
    }

    /// What clients of this cloud must trust.
    pub(crate) fn authority(&self) -> PathBuf {
        self.home.path().join("pki/ca.crt")
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    fn group_id(&self) -> String {
        let subscription = self.known["credentials"]["subscription"].as_str();
        let subscription = subscription.expect("credentials name a subscription");
        format!("/subscriptions/{subscription}/resourceGroups/{GROUP}")
    }

    /// The id of something in the group: `Microsoft.Network/loadBalancers/lb`.
    pub(crate) fn id(&self, path: &str) -> String {
        format!("{}/providers/{path}", self.group_id())
    }

    #[track_caller]
    fn put_at(&self, id: &str, body: Value) -> Value {
        let put = self.runtime.block_on(self.arm.put(id, &body, ""));
        put.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Writes a resource of the group.
    #[track_caller]
    pub(crate) fn put(&self, path: &str, body: Value) -> Value {
        self.put_at(&self.id(path), body)
    }

    /// Reads a resource of the group; null where there is none.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let got = self.runtime.block_on(self.arm.get(&self.id(path), ""));
        got.unwrap_or_else(|error| panic!("{error}"))
            .unwrap_or_default()
    }

    /// Every resource of a type.
    #[track_caller]
    pub(crate) fn list(&self, path: &str) -> Vec<Value> {
        let got = self.runtime.block_on(self.arm.list(&self.id(path), ""));
        got.unwrap_or_else(|error| panic!("{error}"))
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) {
        let gone = self.runtime.block_on(self.arm.delete(&self.id(path)));
        gone.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Has something done, such as `…/deallocate`.
    #[track_caller]
    pub(crate) fn post(&self, path: &str) {
        let (id, body) = (self.id(path), json!({}));
        let done = self.runtime.block_on(self.arm.post(&id, &body));
        done.unwrap_or_else(|error| panic!("{error}"));
    }

    /// A network with a subnet, a security group and a table of routes.
    pub(crate) fn make_network(&self) {
        self.put(
            "Microsoft.Network/networkSecurityGroups/nsg",
            json!({"location": "eastus"}),
        );
        self.put(
            "Microsoft.Network/routeTables/routes",
            json!({"location": "eastus"}),
        );
        let subnet = json!({"name": "nodes", "properties": {"addressPrefix": "10.0.0.0/24"}});
        let network = json!({"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
            "subnets": [subnet]}});
        self.put("Microsoft.Network/virtualNetworks/net", network);
    }

    fn address(&self) -> Value {
        let subnet = self.id("Microsoft.Network/virtualNetworks/net/subnets/nodes");
        json!([{"name": "ip", "properties": {"primary": true, "subnet": {"id": subnet}}}])
    }

    /// A scale set of so many machines in zones, named after itself.
    pub(crate) fn make_set(&self, name: &str, count: u32) {
        let card = json!({"name": "card", "properties": {"primary": true, "ipConfigurations": self.address()}});
        let body = json!({"location": "eastus", "zones": ["1", "2"], "sku": {"name": "Standard_D2s_v5", "capacity": count},
            "properties": {"orchestrationMode": "Uniform", "upgradePolicy": {"mode": "Manual"},
                "virtualMachineProfile": {"osProfile": {"computerNamePrefix": name, "adminUsername": "u"},
                    "networkProfile": {"networkInterfaceConfigurations": [card]}}}});
        self.put(
            &format!("Microsoft.Compute/virtualMachineScaleSets/{name}"),
            body,
        );
    }

    /// A machine of its own.
    pub(crate) fn make_machine(&self, name: &str) {
        let card = format!("Microsoft.Network/networkInterfaces/{name}-card");
        let properties = json!({"ipConfigurations": self.address()});
        self.put(
            &card,
            json!({"location": "eastus", "properties": properties}),
        );
        let body = json!({"location": "eastus", "zones": ["3"], "properties": {"hardwareProfile": {"vmSize": "Standard_D2s_v5"},
            "osProfile": {"computerName": name, "adminUsername": "u"},
            "networkProfile": {"networkInterfaces": [{"id": self.id(&card), "properties": {"primary": true}}]}}});
        self.put(&format!("Microsoft.Compute/virtualMachines/{name}"), body);
    }
}

fn spawn(home: &Path, port: &str) -> Process {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(home.join("log"))
        .expect("a log file");
    Process::spawn(
        Command::new(KYANITE)
            .args(["cloud", "--port", port, "--pace", "0.1", "--data-dir"])
            .arg(home)
            .stdout(Stdio::null())
            .stderr(log),
    )
}

fn settings(known: &Value) -> Value {
    let credentials = &known["credentials"];
    json!({"cloud": "AzurePublicCloud", "resourceManagerEndpoint": known["origin"], "tenantId": credentials["tenant"],
        "subscriptionId": credentials["subscription"], "aadClientId": credentials["client_id"],
        "aadClientSecret": credentials["client_secret"], "resourceGroup": GROUP, "location": "eastus", "vnetName": "net",
        "subnetName": "nodes", "securityGroupName": "nsg", "routeTableName": "routes", "vmType": "vmss"})
}
