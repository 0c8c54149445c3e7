package main

import (
	"runtime/debug"

	"github.com/alecthomas/kong"
)

const description = `One writer for every agent workspace.

Every flag can be given as the environment variable that is named beside it.

Exit codes: 0 done; 1 failed; 2 wrong usage; 73 the reservation was refused; 75 the work could not be saved, and is
where it was; 126 and 127 the command cannot be run, or was not found; 128+n ended by signal n. berth run passes the
exit code of its command on when the work was saved.`

var groups = []kong.Group{
	{Key: "run", Title: "The main thing:"},
	{Key: "things", Title: "What there is:"},
	{Key: "tenure", Title: "What berth run does, step by step:"},
	{Key: "service", Title: "The service:"},
	{Key: "connection", Title: "Which service, and as whom:"},
}

// version is the module's version when Go's tools stamped one, as they do for
// `go install MODULE@VERSION`, and otherwise the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return "devel"
}
