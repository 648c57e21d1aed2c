//! The command that starts the scripts. It changed as they did, and a node's image lives half a year.

use crate::config::Configuration;
use crate::config::predicates::is_custom_cloud;
use crate::environment::location;

/// Which scripts a node carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scripts {
    /// Until spring 2026: started after cloud-init, which the command waits for.
    Waiting,
    /// Started while cloud-init runs; a cloud of its own is set up first.
    Early,
    /// Summer 2026: every cloud is set up first, told where it is.
    Located,
    /// Since: every cloud is set up first, where its script is there.
    Current,
}

const FIRST: &str = "echo $(date),$(hostname) > ${PROVISION_OUTPUT};";
const WAIT: &str = "cloud-init status --wait > /dev/null 2>&1; [ $? -ne 0 ] && echo 'cloud-init failed' \
     >> ${PROVISION_OUTPUT} && exit 1; echo \"cloud-init succeeded\" >> ${PROVISION_OUTPUT};";
const SET_UP: &str =
    "/opt/azure/containers/init-aks-cloud.sh >> /var/log/azure/cluster-provision.log 2>&1";
const SET_UP_IF_THERE: &str = "if [ -f \"${INIT_AKS_CLOUD_FILEPATH}\" ]; then \t\"${INIT_AKS_CLOUD_FILEPATH}\" \
     >> /var/log/azure/cluster-provision.log 2>&1 || exit $?; fi;";
const START: &str =
    "/usr/bin/nohup /bin/bash -c \"/bin/bash /opt/azure/containers/provision_start.sh\"";

/// The command, to be given to `/bin/bash -c`. Spaces are where upstream has them: every line end of its
/// template is one, whether or not something stands on the line.
pub fn command(config: &Configuration, scripts: Scripts) -> String {
    let custom = is_custom_cloud(config);
    let endpoint = &config.custom_cloud_config.repo_depot_endpoint;
    let depot = format!("REPO_DEPOT_ENDPOINT=\"{endpoint}\"");
    let wait = if config.disable_custom_data {
        String::new()
    } else {
        format!(" {WAIT} ")
    };
    let set_up = if custom {
        format!(" {depot} {SET_UP}; ")
    } else {
        String::new()
    };
    match scripts {
        Scripts::Waiting => format!("{FIRST} {wait} {set_up} {START}"),
        Scripts::Early => format!("{FIRST} {set_up} {START} "),
        Scripts::Located => {
            let depot = if custom {
                format!(" {depot} ")
            } else {
                String::new()
            };
            let location = location(config);
            format!("{FIRST} {depot} LOCATION=\"{location}\" {SET_UP} || exit $?; {START} ")
        }
        Scripts::Current => format!("{FIRST} {SET_UP_IF_THERE} {START} "),
    }
}
