//! Which plugins are on.

use super::PLUGINS;

/// Plugins of upstream that would have nothing to do: the kinds or features they are for are not served,
/// here as there by default. Naming them changes nothing.
const IDLE: [&str; 5] = [
    "AlwaysAdmit",
    "ClusterTrustBundleAttest",
    "JobValidation",
    "PodGroupProtection",
    "PodGroupWorkloadExists",
];

/// Plugins of upstream that are not here: they can be switched off, and asking for them is refused
/// rather than ignored.
const ABSENT: [&str; 14] = [
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodResizeValidator",
    "PodTolerationRestriction",
];

/// Which admission plugins are on: upstream's defaults and NodeRestriction, unless flags say otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdmissionSettings {
    on: Vec<&'static str>,
}

impl Default for AdmissionSettings {
    fn default() -> AdmissionSettings {
        let names = PLUGINS.iter().map(|plugin| plugin.name);
        AdmissionSettings {
            on: names.collect(),
        }
    }
}

impl AdmissionSettings {
    /// The settings that `--enable-admission-plugins` and `--disable-admission-plugins` ask for, or
    /// everything that is wrong with them, in upstream's words.
    pub(crate) fn from_flags(
        enable: &[String],
        disable: &[String],
    ) -> Result<AdmissionSettings, String> {
        let mut errors = Vec::new();
        for (flag, names) in [("enable", enable), ("disable", disable)] {
            let unknown = names.iter().filter(|name| !is_known(name));
            errors.extend(
                unknown.map(|name| format!("{flag}-admission-plugins plugin {name:?} is unknown")),
            );
        }
        let absent = enable.iter().filter(|name| ABSENT.contains(&name.as_str()));
        errors.extend(absent.map(|name| {
            format!("enable-admission-plugins plugin {name:?} is not part of this server")
        }));
        let mut both: Vec<&str> = enable.iter().map(String::as_str).collect();
        both.retain(|name| disable.iter().any(|other| other == name));
        both.sort_unstable();
        both.dedup();
        if !both.is_empty() {
            errors.push(format!(
                "[{}] in enable-admission-plugins and disable-admission-plugins overlapped",
                both.join(" ")
            ));
        }
        if !errors.is_empty() {
            return Err(errors.join(", "));
        }
        Ok(AdmissionSettings::default().changed(enable, disable))
    }

    fn changed(&self, enable: &[String], disable: &[String]) -> AdmissionSettings {
        let names = PLUGINS.iter().map(|plugin| plugin.name);
        let listed = |names: &[String], name: &str| names.iter().any(|other| other == name);
        let on = names
            .filter(|name| listed(enable, name) || (self.is_on(name) && !listed(disable, name)));
        AdmissionSettings { on: on.collect() }
    }

    /// Whether a plugin is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.on.contains(&name)
    }
}

fn is_known(name: &str) -> bool {
    PLUGINS.iter().any(|plugin| plugin.name == name)
        || IDLE.contains(&name)
        || ABSENT.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn flags_switch_plugins_and_unknown_names_are_refused() {
        let off = AdmissionSettings::from_flags(&[], &names(&["NamespaceLifecycle"]));
        assert!(!off.expect("known").is_on("NamespaceLifecycle"));
        assert!(AdmissionSettings::default().is_on("NamespaceLifecycle"));
        let refused = AdmissionSettings::from_flags(&names(&["Nope"]), &names(&["Neither"]));
        assert_eq!(
            refused.expect_err("unknown"),
            "enable-admission-plugins plugin \"Nope\" is unknown, \
             disable-admission-plugins plugin \"Neither\" is unknown"
        );
        let off = names(&["PodNodeSelector", "PodGroupProtection"]);
        assert_eq!(
            AdmissionSettings::from_flags(&[], &off),
            Ok(AdmissionSettings::default())
        );
        assert_eq!(
            AdmissionSettings::from_flags(&off, &[]).expect_err("not here"),
            "enable-admission-plugins plugin \"PodNodeSelector\" is not part of this server"
        );
        let both = names(&["NamespaceLifecycle"]);
        assert_eq!(
            AdmissionSettings::from_flags(&both, &both).expect_err("contradiction"),
            "[NamespaceLifecycle] in enable-admission-plugins and disable-admission-plugins overlapped"
        );
    }
}
