//! A cloud without a port or a disk: requests go straight to the decisions. Tests of whole flows.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, Method};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::arm::{self, access, operation};
use crate::chance::Chance;
use crate::entra::token::Caller;
use crate::exchange::{Asked, Reply};
use crate::settings::Settings;
use crate::turn::{Remembered, Turn};

pub(crate) const OWNER: &str = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635";

/// The subscription of tests.
pub(crate) const SUBSCRIPTION: &str = "/subscriptions/00000000-0000-0000-0000-000000000000";

pub(crate) struct Arena {
    pub(crate) state: Remembered,
    pub(crate) settings: Settings,
    pub(crate) now: Timestamp,
    pub(crate) caller: Caller,
    seed: u64,
}

impl Arena {
    /// A cloud whose one caller owns the subscription.
    pub(crate) fn new() -> Arena {
        let caller = caller("00000000-0000-4000-8000-00000000000a");
        let mut arena = Arena {
            state: Remembered(BTreeMap::new()),
            settings: Settings::for_tests(),
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            caller: caller.clone(),
            seed: 0,
        };
        arena.turn(|turn| access::grant(turn, &caller.object_id, "/owner", SUBSCRIPTION, OWNER));
        arena
    }

    /// Lets something decide, and keeps what it changes.
    pub(crate) fn turn<T>(&mut self, decide: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        self.seed += 1;
        let mut turn = Turn::new(
            &self.state,
            self.now,
            Chance::seeded(self.seed),
            &self.settings,
        );
        let outcome = decide(&mut turn);
        for (key, value) in turn.changes() {
            match value {
                Some(value) => self.state.0.insert(key, value),
                None => self.state.0.remove(&key),
            };
        }
        outcome
    }

    pub(crate) fn ask_with(
        &mut self,
        method: &str,
        target: &str,
        headers: HeaderMap,
        body: &str,
    ) -> Reply {
        let method: Method = method.parse().unwrap();
        let asked = Asked::new(method, target, headers, Bytes::from(body.to_owned()));
        let caller = self.caller.clone();
        self.turn(|turn| arm::answer(turn, &caller, &asked))
    }

    /// Asks ARM below the test's subscription.
    pub(crate) fn ask(&mut self, method: &str, path: &str, body: Value) -> Reply {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let mark = if path.contains('?') { '&' } else { '?' };
        let target = format!("{SUBSCRIPTION}{path}{mark}api-version=2025-01-01");
        self.ask_with(method, &target, HeaderMap::new(), &text)
    }

    /// Brings everything that is under way to its end.
    pub(crate) fn settle(&mut self) {
        self.now += SignedDuration::from_secs(3600);
        loop {
            let due = self
                .state
                .0
                .iter()
                .find_map(|(key, entry)| operation::due(key, entry).map(|_| key.clone()));
            let Some(key) = due else {
                return;
            };
            self.turn(|turn| operation::complete(turn, key.trim_start_matches("op/")));
        }
    }

    /// Asks, and waits for the end of whatever begins; gives the status and code.
    pub(crate) fn done(&mut self, method: &str, path: &str, body: Value) -> (u16, String) {
        let reply = self.ask(method, path, body);
        self.settle();
        let code = reply.document()["error"]["code"]
            .as_str()
            .or_else(|| reply.document()["code"].as_str());
        (reply.status.as_u16(), code.unwrap_or_default().to_owned())
    }

    pub(crate) fn group(&mut self, name: &str) {
        let (status, _) = self.done(
            "PUT",
            &format!("/resourcegroups/{name}"),
            json!({"location": "eastus"}),
        );
        assert_eq!(status, 201);
    }
}

pub(crate) fn caller(id: &str) -> Caller {
    Caller {
        object_id: id.into(),
        name: "somebody".into(),
        app_id: "app".into(),
        is_app: true,
        groups: Vec::new(),
        token_id: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: &str = "/resourceGroups/g/providers/Microsoft.Network";
    const C: &str = "/resourceGroups/g/providers/Microsoft.Compute";
    const K: &str = "/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters";

    fn network() -> Value {
        json!({"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
            "subnets": [{"name": "s", "properties": {"addressPrefix": "10.0.0.0/24"}}]}})
    }

    fn card(subnet: &str) -> Value {
        let id = format!("{SUBSCRIPTION}{N}/virtualNetworks/v/subnets/{subnet}");
        json!({"location": "eastus", "properties": {"ipConfigurations": [{"name": "one", "properties": {"subnet": {"id": id}}}]}})
    }

    #[test]
    fn what_azure_rejects_is_rejected_with_its_code_and_changes_nothing() {
        let mut arena = Arena::new();
        arena.group("g");
        assert_eq!(
            arena
                .done("PUT", &format!("{N}/virtualNetworks/v"), network())
                .0,
            201
        );
        assert_eq!(
            arena
                .done("PUT", &format!("{N}/networkInterfaces/n"), card("s"))
                .0,
            201
        );
        let vnet = |prefix: &str| {
            json!({"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
            "subnets": [{"name": "a", "properties": {"addressPrefix": "10.0.0.0/24"}}, {"name": "b", "properties": {"addressPrefix": prefix}}]}})
        };
        let rows: Vec<(&str, String, Value, u16, &str)> = vec![
            (
                "PUT",
                format!("{N}/virtualNetworks/w"),
                vnet("10.0.0.128/25"),
                400,
                "NetcfgSubnetRangesOverlap",
            ),
            (
                "PUT",
                format!("{N}/virtualNetworks/w"),
                vnet("10.9.0.0/24"),
                400,
                "NetcfgInvalidSubnet",
            ),
            (
                "PUT",
                format!("{N}/virtualNetworks/w"),
                vnet("10.0.1.1/24"),
                400,
                "InvalidCIDRNotation",
            ),
            (
                "PUT",
                format!("{N}/virtualNetworks/w"),
                vnet("nonsense"),
                400,
                "InvalidAddressPrefixFormat",
            ),
            (
                "PUT",
                format!("{N}/virtualNetworks/w"),
                json!({"location": "eastus"}),
                400,
                "InvalidParameter",
            ),
            (
                "PUT",
                format!("{N}/virtualNetworks/w"),
                json!({"properties": {}}),
                400,
                "LocationRequired",
            ),
            (
                "PUT",
                format!("{N}/virtualNetworks/w"),
                json!({"location": "moon"}),
                400,
                "LocationNotAvailableForResourceType",
            ),
            (
                "PUT",
                format!("{N}/virtualNetworks/v"),
                json!({"location": "westus", "properties": {}}),
                409,
                "InvalidResourceLocation",
            ),
            (
                "PUT",
                format!("{N}/virtualNetworks/{}", "x".repeat(90)),
                network(),
                400,
                "InvalidResourceName",
            ),
            (
                "PUT",
                format!("{N}/networkInterfaces/m"),
                card("none"),
                400,
                "InvalidResourceReference",
            ),
            (
                "DELETE",
                format!("{N}/virtualNetworks/v/subnets/s"),
                Value::Null,
                400,
                "InUseSubnetCannotBeDeleted",
            ),
            (
                "DELETE",
                format!("{N}/virtualNetworks/v"),
                Value::Null,
                400,
                "InUseSubnetCannotBeDeleted",
            ),
            (
                "GET",
                format!("{N}/virtualNetworks/v?api-version=1999-01-01"),
                Value::Null,
                400,
                "NoRegisteredProviderFound",
            ),
            (
                "GET",
                "/resourceGroups/g?api-version=2999-01-01".into(),
                Value::Null,
                400,
                "InvalidApiVersionParameter",
            ),
            (
                "GET",
                "/resourceGroups/g?api-version=yesterday".into(),
                Value::Null,
                400,
                "InvalidApiVersionParameter",
            ),
            (
                "PUT",
                format!("{N}/routeTables/r"),
                json!({"location": "eastus", "properties": {"rootes": []}}),
                400,
                "InvalidRequestFormat",
            ),
            (
                "PUT",
                format!("{C}/availabilitySets/a"),
                json!({"location": "eastus", "properties": {"faultDomains": 2}}),
                400,
                "BadRequest",
            ),
            (
                "PUT",
                format!("{N}/networkInterfaces/m"),
                json!({"location": "eastus", "properties": {"ipConfigurations": [{"name": "one",
                    "properties": {"subnet": {"id": "/subscriptions/s/nonsense"}}}]}}),
                400,
                "LinkedInvalidPropertyId",
            ),
            (
                "PUT",
                "/resourceGroups/bad%23name".into(),
                json!({"location": "eastus"}),
                400,
                "InvalidResourceGroup",
            ),
            (
                "GET",
                format!("{N}/nothings/x"),
                Value::Null,
                404,
                "InvalidResourceType",
            ),
            (
                "GET",
                "/resourceGroups/g/providers/Microsoft.Nothing/x/y".into(),
                Value::Null,
                404,
                "InvalidResourceNamespace",
            ),
            (
                "GET",
                format!("{N}/virtualNetworks/none"),
                Value::Null,
                404,
                "ResourceNotFound",
            ),
            (
                "GET",
                format!("{N}/virtualNetworks/none/subnets/s"),
                Value::Null,
                404,
                "ParentResourceNotFound",
            ),
            (
                "GET",
                "/resourceGroups/none".into(),
                Value::Null,
                404,
                "ResourceGroupNotFound",
            ),
            (
                "PUT",
                "/resourceGroups/none/providers/Microsoft.Network/virtualNetworks/v".into(),
                network(),
                404,
                "ResourceGroupNotFound",
            ),
            (
                "PUT",
                format!("{C}/disks/d"),
                json!({"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}}}),
                400,
                "InvalidParameter",
            ),
            (
                "PUT",
                format!("{C}/virtualMachineScaleSets/big"),
                json!({"location": "eastus", "sku": {"name": "Standard_D2s_v3", "capacity": 1001}}),
                400,
                "InvalidParameter",
            ),
            (
                "PUT",
                format!("{K}/c"),
                json!({"location": "eastus", "properties": {"dnsPrefix": "d", "kubernetesVersion": "1.2"}}),
                400,
                "K8sVersionNotSupported",
            ),
            (
                "PUT",
                format!("{K}/c"),
                json!({"location": "eastus", "properties": {"dnsPrefix": "d"}}),
                400,
                "InvalidParameter",
            ),
        ];
        for (method, path, body, status, code) in rows {
            let before = arena.state.0.len();
            let activity = |arena: &Arena| {
                arena
                    .state
                    .0
                    .keys()
                    .filter(|key| key.starts_with("activity/"))
                    .count()
            };
            let logged = activity(&arena);
            assert_eq!(
                arena.done(method, &path, body),
                (status, code.to_owned()),
                "{method} {path}"
            );
            assert_eq!(
                arena.state.0.len() - before,
                activity(&arena) - logged,
                "{method} {path} left something behind"
            );
        }
    }

    #[test]
    fn a_disk_is_attached_to_one_machine_at_a_time() {
        let mut arena = Arena::new();
        arena.group("g");
        arena.done("PUT", &format!("{N}/virtualNetworks/v"), network());
        for n in ["n1", "n2"] {
            arena.done("PUT", &format!("{N}/networkInterfaces/{n}"), card("s"));
        }
        let disk = json!({"location": "eastus", "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4}});
        assert_eq!(
            arena.done("PUT", &format!("{C}/disks/d"), disk.clone()).0,
            202
        );
        let machine = |card: &str| {
            json!({"location": "eastus", "properties": {"hardwareProfile": {"vmSize": "Standard_D2s_v3"},
            "networkProfile": {"networkInterfaces": [{"id": format!("{SUBSCRIPTION}{N}/networkInterfaces/{card}")}]},
            "storageProfile": {"dataDisks": [{"lun": 0, "createOption": "Attach", "managedDisk": {"id": format!("{SUBSCRIPTION}{C}/disks/d")}}]}}})
        };
        assert_eq!(
            arena
                .done("PUT", &format!("{C}/virtualMachines/a"), machine("n1"))
                .0,
            201
        );
        assert_eq!(
            arena.done("PUT", &format!("{C}/virtualMachines/b"), machine("n2")),
            (409, "ConflictingUserInput".into())
        );
        assert_eq!(
            arena.done("DELETE", &format!("{C}/disks/d"), Value::Null),
            (409, "OperationNotAllowed".into())
        );
        assert_eq!(
            arena
                .done("DELETE", &format!("{N}/networkInterfaces/n1"), Value::Null)
                .0,
            400
        );
        assert_eq!(
            arena
                .done("DELETE", &format!("{C}/virtualMachines/a"), Value::Null)
                .0,
            202
        );
        assert_eq!(
            arena.done("DELETE", &format!("{C}/disks/d"), Value::Null).0,
            202
        );
        // Whoever has a disk and the disk go together.
        arena.done("PUT", &format!("{C}/disks/d"), disk);
        let machine = arena.done("PUT", &format!("{C}/virtualMachines/a"), machine("n1"));
        assert_eq!(machine.0, 201);
        let group = arena.done("DELETE", "/resourceGroups/g", Value::Null);
        assert_eq!(group.0, 202, "{group:?}");
    }

    #[test]
    fn a_scale_set_grows_and_shrinks_by_its_capacity_alone() {
        let mut arena = Arena::new();
        arena.group("g");
        arena.done("PUT", &format!("{N}/virtualNetworks/v"), network());
        let subnet = format!("{SUBSCRIPTION}{N}/virtualNetworks/v/subnets/s");
        let model = json!({"location": "eastus", "sku": {"name": "Standard_D2s_v3", "capacity": 3}, "properties": {
            "virtualMachineProfile": {"osProfile": {"computerNamePrefix": "w"}, "networkProfile": {"networkInterfaceConfigurations": [
                {"name": "n", "properties": {"primary": true, "ipConfigurations": [{"name": "i", "properties": {"subnet": {"id": subnet}}}]}}]}}}});
        let set = format!("{C}/virtualMachineScaleSets/w");
        assert_eq!(arena.done("PUT", &set, model).0, 201);
        let count = |arena: &mut Arena| {
            let reply = arena.ask("GET", &format!("{set}/virtualMachines"), Value::Null);
            reply.document()["value"].as_array().unwrap().len()
        };
        assert_eq!(count(&mut arena), 3);
        for (capacity, expected) in [(5, 5), (1, 1), (2, 2)] {
            let body = json!({"location": "eastus", "sku": {"name": "Standard_D2s_v3", "capacity": capacity}});
            assert_eq!(arena.done("PUT", &set, body).0, 200);
            assert_eq!(count(&mut arena), expected);
        }
        // Numbers are not used again.
        let last = arena.ask("GET", &format!("{set}/virtualMachines/5"), Value::Null);
        assert_eq!(
            last.document()["properties"]["osProfile"]["computerName"],
            "w000005"
        );
        let cards = arena.ask(
            "GET",
            &format!("{set}/virtualMachines/5/networkInterfaces"),
            Value::Null,
        );
        let address = &cards.document()["value"][0]["properties"]["ipConfigurations"][0]["properties"]
            ["privateIPAddress"];
        assert!(address.as_str().unwrap().starts_with("10.0.0."));
        let too_many =
            json!({"location": "eastus", "sku": {"name": "Standard_D2s_v3", "capacity": 300}});
        assert_eq!(
            arena.done("PUT", &set, too_many),
            (400, "SubnetIsFull".into())
        );
        assert_eq!(count(&mut arena), 2);
    }

    #[test]
    fn a_cluster_lives_from_creating_to_gone_and_its_nodes_with_it() {
        let mut arena = Arena::new();
        arena.group("g");
        let body = json!({"location": "eastus", "identity": {"type": "SystemAssigned"}, "properties": {"dnsPrefix": "c",
            "agentPoolProfiles": [{"name": "p", "count": 2, "mode": "System", "vmSize": ""}]}});
        let made = arena.ask("PUT", &format!("{K}/c"), body.clone());
        assert_eq!(made.status, 201);
        assert_eq!(
            made.document()["properties"]["provisioningState"],
            "Creating"
        );
        assert!(made.document()["identity"]["principalId"].is_string());
        let (status, code) = {
            let reply = arena.ask("PUT", &format!("{K}/c"), body.clone());
            (reply.status.as_u16(), reply.document()["code"].clone())
        };
        assert_eq!((status, code), (409, json!("OperationNotAllowed")));
        arena.settle();
        let found = arena.ask("GET", &format!("{K}/c"), Value::Null);
        assert_eq!(
            found.document()["properties"]["provisioningState"],
            "Succeeded"
        );
        assert!(
            found.document()["properties"]["identityProfile"]["kubeletidentity"]["clientId"]
                .is_string()
        );
        let again = arena.ask("PUT", &format!("{K}/c"), found.document().clone());
        assert_eq!(again.document(), found.document());
        assert!(!again.headers.contains_key("azure-asyncoperation"));
        let nodes = arena.ask(
            "GET",
            "/resourceGroups/MC_g_c_eastus/resources",
            Value::Null,
        );
        let kinds: Vec<&str> = nodes.document()["value"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|r| r["type"].as_str())
            .collect();
        for kind in [
            "virtualMachineScaleSets",
            "loadBalancers",
            "virtualNetworks",
            "publicIPAddresses",
            "userAssignedIdentities",
        ] {
            assert!(
                kinds.iter().any(|k| k.ends_with(kind)),
                "{kind} is missing in {kinds:?}"
            );
        }
        assert_eq!(
            arena
                .done("DELETE", &format!("{K}/c/agentPools/p"), Value::Null)
                .0,
            400
        );
        assert_eq!(arena.done("DELETE", &format!("{K}/c"), Value::Null).0, 202);
        assert_eq!(
            arena
                .done("GET", "/resourceGroups/MC_g_c_eastus", Value::Null)
                .0,
            404
        );
        assert_eq!(
            arena.done("DELETE", "/resourceGroups/g", Value::Null).0,
            202
        );
        let left: Vec<&String> = arena
            .state
            .0
            .keys()
            .filter(|k| k.starts_with("arm/") || k.starts_with("ref/"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn locks_and_roles_and_marks_hold_back_what_they_should() {
        let mut arena = Arena::new();
        arena.group("g");
        let lock = json!({"properties": {"level": "CanNotDelete"}});
        let path = "/resourceGroups/g/providers/Microsoft.Authorization/locks/l";
        assert_eq!(arena.done("PUT", path, lock).0, 201);
        assert_eq!(
            arena.done("DELETE", "/resourceGroups/g", Value::Null),
            (409, "ScopeLocked".into())
        );
        arena.done("DELETE", path, Value::Null);
        arena.done("PUT", &format!("{N}/virtualNetworks/v"), network());
        let mut headers = HeaderMap::new();
        headers.insert("if-match", "\"wrong\"".parse().unwrap());
        let target = format!("{SUBSCRIPTION}{N}/virtualNetworks/v?api-version=2025-01-01");
        let reply = arena.ask_with("PUT", &target, headers, &network().to_string());
        assert_eq!(reply.status, 412);
        arena.caller = caller("00000000-0000-4000-8000-00000000000b");
        assert_eq!(
            arena.done("DELETE", "/resourceGroups/g", Value::Null),
            (403, "AuthorizationFailed".into())
        );
        assert_eq!(
            arena.done("GET", &format!("{N}/virtualNetworks/v"), Value::Null),
            (403, "AuthorizationFailed".into())
        );
    }

    #[test]
    fn more_cores_than_a_region_gives_are_refused() {
        let mut arena = Arena::new();
        arena.group("g");
        let set = |name: &str| format!("{C}/virtualMachineScaleSets/{name}");
        let most = json!({"location": "eastus", "sku": {"name": "Standard_D16s_v5", "capacity": 1000}, "properties": {
            "virtualMachineProfile": {"osProfile": {"computerNamePrefix": "w"}}}});
        let first = arena.done("PUT", &set("a"), most.clone());
        assert_eq!(first.0, 201, "{first:?}");
        let before = arena.state.0.len();
        let second = arena.done("PUT", &set("b"), most);
        assert_eq!(second, (409, "OperationNotAllowed".into()));
        assert_eq!(arena.state.0.len(), before + 1, "only the log knows of it");
    }

    #[test]
    fn whoever_loses_a_role_in_mid_operation_ends_with_nothing_half_made() {
        let mut arena = Arena::new();
        arena.group("g");
        let owner = arena.caller.clone();
        let robot = caller("00000000-0000-4000-8000-00000000000c");
        let contributor = "b24988ac-6180-42a0-ab88-20f7382dd24c";
        arena.turn(|turn| {
            access::grant(turn, &robot.object_id, "/robot", SUBSCRIPTION, contributor)
        });
        arena.caller = robot.clone();
        let table = |name: &str| {
            json!({"type": "Microsoft.Network/routeTables", "apiVersion": "2024-01-01", "name": name,
            "location": "eastus", "properties": {}})
        };
        let body = json!({"properties": {"mode": "incremental", "template": {"resources": [table("a"), table("b")]}}});
        let path = "/resourceGroups/g/providers/Microsoft.Resources/deployments/d";
        assert_eq!(arena.ask("PUT", path, body).status, 201);
        arena.turn(|turn| turn.remove(access::key(&robot.object_id, "/robot")));
        arena.settle();
        arena.caller = owner;
        let ended = arena.ask("GET", path, Value::Null);
        let properties = &ended.document()["properties"];
        assert_eq!(properties["provisioningState"], "Failed");
        let cause = &properties["error"]["details"][0]["code"];
        assert_eq!(cause, "AuthorizationFailed");
        for name in ["a", "b"] {
            let found = arena.done("GET", &format!("{N}/routeTables/{name}"), Value::Null);
            assert_eq!(found.0, 404, "{name}");
        }
    }

    #[test]
    fn a_template_of_a_subscription_makes_groups_and_what_is_in_them() {
        let mut arena = Arena::new();
        let inner = json!({"resources": [{"type": "Microsoft.Network/routeTables", "apiVersion": "2024-01-01", "name": "t",
            "location": "eastus", "properties": {}}]});
        let template = json!({"resources": [
            {"type": "Microsoft.Resources/resourceGroups", "apiVersion": "2024-11-01", "name": "made", "location": "eastus"},
            {"type": "Microsoft.Resources/deployments", "apiVersion": "2024-11-01", "name": "inside", "resourceGroup": "made",
                "dependsOn": ["[subscriptionResourceId('Microsoft.Resources/resourceGroups', 'made')]"],
                "properties": {"mode": "Incremental", "template": inner}}]});
        let body = json!({"location": "eastus", "properties": {"mode": "Incremental", "template": template}});
        let path = "/providers/Microsoft.Resources/deployments/d";
        assert_eq!(arena.done("PUT", path, body).0, 201);
        let ended = arena.ask("GET", path, Value::Null);
        let properties = &ended.document()["properties"];
        assert_eq!(properties["provisioningState"], "Succeeded", "{properties}");
        let table = "/resourceGroups/made/providers/Microsoft.Network/routeTables/t";
        assert_eq!(arena.done("GET", table, Value::Null).0, 200);
        let listed = arena.ask(
            "GET",
            "/resourceGroups/made/deployments/inside/operations",
            Value::Null,
        );
        assert_eq!(listed.status, 200);
    }

    #[test]
    fn a_template_becomes_resources_in_the_order_they_need() {
        let mut arena = Arena::new();
        arena.group("g");
        let template = json!({
            "parameters": {"count": {"type": "int", "defaultValue": 2}, "name": {"type": "string"}},
            "variables": {"net": "[concat(parameters('name'), '-net')]"},
            "resources": [
                {"type": "Microsoft.Network/networkInterfaces", "apiVersion": "2024-01-01", "name": "[format('nic{0}', copyIndex())]",
                    "location": "[resourceGroup().location]", "copy": {"name": "nics", "count": "[parameters('count')]"},
                    "dependsOn": ["[resourceId('Microsoft.Network/virtualNetworks', variables('net'))]"],
                    "properties": {"ipConfigurations": [{"name": "i", "properties": {"subnet": {"id":
                        "[reference(resourceId('Microsoft.Network/virtualNetworks', variables('net')), '2024-01-01').subnets[0].id]"}}}]}},
                {"type": "Microsoft.Network/virtualNetworks", "apiVersion": "2024-01-01", "name": "[variables('net')]",
                    "location": "[resourceGroup().location]", "properties": network()["properties"]},
                {"type": "Microsoft.Network/routeTables", "apiVersion": "2024-01-01", "name": "never", "condition": "[equals(parameters('count'), 5)]",
                    "location": "eastus", "properties": {}}],
            "outputs": {"address": {"type": "string", "value": "[reference('nic1').ipConfigurations[0].properties.privateIPAddress]"}}});
        let path = "/resourceGroups/g/providers/Microsoft.Resources/deployments/d";
        let body = json!({"properties": {"template": template, "parameters": {"name": {"value": "a"}}, "mode": "incremental"}});
        let what_if = arena.ask("POST", &format!("{path}/whatIf"), body.clone());
        assert_eq!(
            what_if.document()["properties"]["changes"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        assert_eq!(arena.done("PUT", path, body.clone()).0, 201);
        let made = arena.ask("GET", path, Value::Null);
        let properties = &made.document()["properties"];
        assert_eq!(properties["provisioningState"], "Succeeded", "{properties}");
        assert_eq!(properties["outputs"]["address"]["value"], "10.0.0.5");
        assert_eq!(
            arena
                .done("GET", &format!("{N}/routeTables/never"), Value::Null)
                .0,
            404
        );
        for (wrong, with) in [
            ("copyIndex()", "copyIndex('none')"),
            ("variables('net')]", "variables('gone')]"),
            ("format(", "formatted("),
        ] {
            let text = body.to_string().replace(wrong, with);
            let (status, code) = arena.done("PUT", path, serde_json::from_str(&text).unwrap());
            assert_eq!((status, code.as_str()), (400, "InvalidTemplate"), "{with}");
        }
        let circle = json!({"properties": {"mode": "incremental", "template": {"resources": [], "variables": {"a": "[variables('b')]",
            "b": "[variables('a')]"}, "outputs": {"o": {"type": "string", "value": "[variables('a')]"}}}}});
        arena.done("PUT", path, circle);
        let failed = arena.ask("GET", path, Value::Null);
        assert_eq!(
            failed.document()["properties"]["error"]["details"][0]["code"],
            "InvalidTemplate"
        );
    }

    /// A resource that Azure would take: its path and what is sent.
    fn any_resource(chance: &mut Chance, at: usize) -> (String, Value) {
        let pick = |chance: &mut Chance, most: usize| {
            chance.digits(4).parse::<usize>().unwrap_or(0) % most
        };
        let location = ["eastus", "westus2", "westeurope"][pick(chance, 3)];
        let tags = match pick(chance, 3) {
            0 => json!({}),
            1 => json!({"env": chance.small(5)}),
            _ => json!({"env": "prod", "Owner": chance.small(8)}),
        };
        let (kind, mut body) = match pick(chance, 9) {
            0 => {
                let subnets: Vec<Value> = (0..pick(chance, 4))
                    .map(|n| json!({"name": format!("s{n}"), "properties": {"addressPrefix": format!("10.1.{n}.0/24")}}))
                    .collect();
                let space = json!({"addressPrefixes": ["10.1.0.0/16"]});
                (
                    "Microsoft.Network/virtualNetworks",
                    json!({"properties": {"addressSpace": space, "subnets": subnets}}),
                )
            }
            1 => {
                let rules: Vec<Value> = (0..pick(chance, 4))
                    .map(|n| {
                        json!({"name": format!("r{n}"), "properties": {"priority": 100 + n, "direction": "Inbound", "access": "Allow",
                        "protocol": "Tcp", "sourcePortRange": "*", "destinationPortRange": "22", "sourceAddressPrefix": "*",
                        "destinationAddressPrefix": "*"}})
                    })
                    .collect();
                (
                    "Microsoft.Network/networkSecurityGroups",
                    json!({"properties": {"securityRules": rules}}),
                )
            }
            2 => (
                "Microsoft.Network/publicIPAddresses",
                json!({"sku": {"name": "Standard"}, "properties": {
                "publicIPAllocationMethod": "Static", "idleTimeoutInMinutes": 4 + pick(chance, 20)}}),
            ),
            3 => (
                "Microsoft.Network/routeTables",
                json!({"properties": {"disableBgpRoutePropagation": pick(chance, 2) == 0,
                "routes": [{"name": "r", "properties": {"addressPrefix": "0.0.0.0/0", "nextHopType": "Internet"}}]}}),
            ),
            4 => (
                "Microsoft.Compute/disks",
                json!({"sku": {"name": "Premium_LRS"}, "properties": {
                "creationData": {"createOption": "Empty"}, "diskSizeGB": 1 + pick(chance, 4000)}}),
            ),
            5 => (
                "Microsoft.ManagedIdentity/userAssignedIdentities",
                json!({}),
            ),
            6 => (
                "Microsoft.Network/loadBalancers",
                json!({"sku": {"name": "Standard"}, "properties": {
                "backendAddressPools": [{"name": "p"}],
                "probes": [{"name": "h", "properties": {"protocol": "Tcp", "port": 1 + pick(chance, 9000)}}]}}),
            ),
            7 => (
                "Microsoft.Compute/availabilitySets",
                json!({"sku": {"name": "Aligned"}, "properties": {
                "platformFaultDomainCount": 1 + pick(chance, 3)}}),
            ),
            _ => (
                "Microsoft.Network/natGateways",
                json!({"properties": {"idleTimeoutInMinutes": 4 + pick(chance, 100)}}),
            ),
        };
        body["location"] = json!(location);
        body["tags"] = tags;
        (format!("/resourceGroups/g/providers/{kind}/n{at}"), body)
    }

    /// Whether everything that was sent came back.
    fn came_back(sent: &Value, shown: &Value, path: &str) {
        match (sent, shown) {
            (Value::Object(sent), Value::Object(shown)) => {
                sent.iter().for_each(|(key, value)| {
                    came_back(value, &shown[key], &format!("{path}/{key}"))
                });
            }
            (Value::Array(sent), Value::Array(shown)) => {
                assert_eq!(sent.len(), shown.len(), "{path}");
                sent.iter()
                    .zip(shown)
                    .for_each(|(sent, shown)| came_back(sent, shown, path));
            }
            _ => assert_eq!(sent, shown, "{path}"),
        }
    }

    #[test]
    fn what_is_written_comes_back_and_writing_it_again_changes_nothing() {
        let mut arena = Arena::new();
        arena.group("g");
        let mut chance = Chance::seeded(20);
        for at in 0..1000 {
            let (path, body) = any_resource(&mut chance, at);
            let (status, code) = arena.done("PUT", &path, body.clone());
            assert!(
                (200..300).contains(&status),
                "{path} {body}: {status} {code}"
            );
            let first = arena.ask("GET", &path, Value::Null).document().clone();
            came_back(&body, &first, &path);
            arena.done("PUT", &path, body);
            assert_eq!(
                arena.ask("GET", &path, Value::Null).document(),
                &first,
                "{path}"
            );
            arena.done("PUT", &path, first.clone());
            assert_eq!(
                arena.ask("GET", &path, Value::Null).document(),
                &first,
                "{path}"
            );
            // The log of what was done is not what is looked at here.
            arena
                .state
                .0
                .retain(|key, _| !key.starts_with("activity/") && !key.starts_with("op/"));
        }
    }
}
