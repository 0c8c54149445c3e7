package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// What the data directory holds; `berth serve` makes all of it.
const (
	defaultDataDir    = ".berth"
	operatorTokenFile = "operator-token"
	privateServerDir  = "postgres"
	snapshotsDir      = "snapshots"
)

type dataDirFlag struct {
	DataDir string `placeholder:"DIR" help:"The directory of the service's data. Default: .berth here; as root, where the user of Postgres cannot get there, /var/tmp/berth-0."`
}

// fallbackDataDir is where the data is when root starts the service in a
// directory that the user of its Postgres cannot enter, such as /root. Others
// than root run Postgres as themselves, who can enter their own directories.
func fallbackDataDir() string {
	return filepath.Join("/var/tmp", fmt.Sprintf("berth-%d", os.Geteuid()))
}
