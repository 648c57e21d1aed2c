// Command kubectl is the unmodified client, built from its published module for machines whose
// package source has none that is recent enough. See scripts/setup.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	os.Exit(cli.Run(cmd.NewDefaultKubectlCommand()))
}
