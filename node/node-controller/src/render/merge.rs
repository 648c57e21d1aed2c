//! Files that others own too: our lines are put in, theirs stay, and doing it twice changes
//! nothing.

/// The text without the lines that set one of these variables; ends with a newline unless empty.
pub fn without_variables(text: &str, names: &[&str]) -> String {
    let ours = |line: &str| {
        let name = line
            .trim_start()
            .trim_start_matches("export ")
            .split('=')
            .next();
        line.contains('=') && name.is_some_and(|name| names.contains(&name.trim()))
    };
    text.lines()
        .filter(|line| !ours(line))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The text with each of these variables set at its end.
pub fn with_variables(text: &str, variables: &[(&str, &str)]) -> String {
    let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
    let ours: String = variables
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    without_variables(text, &names) + &ours
}

/// `/etc/fstab` with this swap file. It is not mounted at boot by itself: a unit does that once
/// its disk is there.
pub fn with_swap(fstab: &str, file: &str) -> String {
    let other = |line: &&str| line.split_whitespace().next() != Some(file);
    let kept: String = fstab
        .lines()
        .filter(other)
        .map(|line| format!("{line}\n"))
        .collect();
    format!("{kept}{file} none swap noauto,nofail 0 0\n")
}

/// `sshd_config` in which nobody may log in with a key, except where a `Match` block (such as the
/// one of Entra ID's login) allows it.
pub fn without_public_keys(sshd_config: &str) -> String {
    const SETTING: &str = "PubkeyAuthentication no\n";
    let mut text = String::new();
    let (mut matching, mut written) = (false, false);
    for line in sshd_config.lines() {
        let keyword = line.split_whitespace().next().unwrap_or_default();
        if keyword.eq_ignore_ascii_case("Match") {
            if !matching && !written {
                text += SETTING;
                written = true;
            }
            matching = true;
        }
        if !matching && keyword.eq_ignore_ascii_case("PubkeyAuthentication") {
            // sshd believes the first of several.
            if !written {
                text += SETTING;
            }
            written = true;
            continue;
        }
        text += line;
        text.push('\n');
    }
    if !written {
        text += SETTING;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_stands_in_fstab_once() {
        let before = "UUID=1 / ext4 defaults 0 1\n/swapfile none swap sw 0 0\n";
        let after = with_swap(before, "/swapfile");
        assert_eq!(
            after,
            "UUID=1 / ext4 defaults 0 1\n/swapfile none swap noauto,nofail 0 0\n"
        );
        assert_eq!(with_swap(&after, "/swapfile"), after);
        assert_eq!(
            with_swap("", "/mnt/swapfile"),
            "/mnt/swapfile none swap noauto,nofail 0 0\n"
        );
    }

    #[test]
    fn keys_are_refused_outside_of_match_blocks_only() {
        let cases = [
            ("Port 22\n", "Port 22\nPubkeyAuthentication no\n"),
            (
                "PubkeyAuthentication yes\nPort 22\npubkeyauthentication yes\n",
                "PubkeyAuthentication no\nPort 22\n",
            ),
            (
                "Port 22\nMatch User x\n  PubkeyAuthentication yes\n",
                "Port 22\nPubkeyAuthentication no\nMatch User x\n  PubkeyAuthentication yes\n",
            ),
        ];
        for (before, after) in cases {
            assert_eq!(without_public_keys(before), after);
            assert_eq!(
                without_public_keys(after),
                after,
                "the second time nothing changes"
            );
        }
    }

    #[test]
    fn variables_are_replaced_wherever_they_were() {
        let after = with_variables("a=1\nb=2\n", &[("a", "3")]);
        assert_eq!(after, "b=2\na=3\n");
        assert_eq!(with_variables(&after, &[("a", "3")]), after);
    }
}
