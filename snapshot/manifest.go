package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"time"
	"unicode/utf8"
)

const (
	filesPrefix    = "files/"
	manifestName   = "manifest.jsonl"
	manifestSchema = "berth.snapshot.v1"
)

// Kind says what a path is.
type Kind string

// The first three kinds are saved. The others occur only among what was skipped.
const (
	KindFile      Kind = "file"
	KindDirectory Kind = "directory"
	KindSymlink   Kind = "symlink"
	KindSocket    Kind = "socket"
	KindFIFO      Kind = "fifo"
	KindDevice    Kind = "device"
	KindOther     Kind = "other"
)

func kindOf(mode fs.FileMode) Kind {
	switch {
	case mode.IsRegular():
		return KindFile
	case mode.IsDir():
		return KindDirectory
	case mode&fs.ModeSymlink != 0:
		return KindSymlink
	case mode&fs.ModeSocket != 0:
		return KindSocket
	case mode&fs.ModeNamedPipe != 0:
		return KindFIFO
	case mode&fs.ModeDevice != 0:
		return KindDevice
	default:
		return KindOther
	}
}

// entry is one member of the archive.
type entry struct {
	path   string
	kind   Kind
	mode   fs.FileMode // permission bits; not for links
	mtime  time.Time
	size   int64  // files
	sha256 string // files
	target string // links
}

// manifestLine is one line of the manifest. Pointers tell "zero" from "does not apply".
type manifestLine struct {
	Schema       string `json:"schema,omitempty"`
	Path         string `json:"path,omitempty"`
	PathBase64   []byte `json:"pathBase64,omitempty"`
	Kind         Kind   `json:"kind,omitempty"`
	Mode         string `json:"mode,omitempty"`
	MTime        string `json:"mtime,omitempty"`
	Size         *int64 `json:"size,omitempty"`
	SHA256       string `json:"sha256,omitempty"`
	Target       string `json:"target,omitempty"`
	TargetBase64 []byte `json:"targetBase64,omitempty"`
	Skipped      string `json:"skipped,omitempty"`
}

func (e entry) line() manifestLine {
	line := manifestLine{Kind: e.kind, MTime: formatTime(e.mtime), SHA256: e.sha256}
	line.Path, line.PathBase64 = splitUTF8(e.path)
	line.Target, line.TargetBase64 = splitUTF8(e.target)
	if e.kind != KindSymlink {
		line.Mode = fmt.Sprintf("%04o", e.mode.Perm())
	}
	if e.kind == KindFile {
		line.Size = &e.size
	}
	return line
}

func (s Skipped) line() manifestLine {
	line := manifestLine{Kind: s.Kind, Skipped: s.Reason}
	line.Path, line.PathBase64 = splitUTF8(s.Path)
	line.Target, line.TargetBase64 = splitUTF8(s.Target)
	return line
}

func (l manifestLine) skipped() Skipped {
	return Skipped{Path: l.path(), Kind: l.Kind, Reason: l.Skipped, Target: joinUTF8(l.Target, l.TargetBase64)}
}

func (l manifestLine) path() string { return joinUTF8(l.Path, l.PathBase64) }

// difference names the first field in which two lines differ and shows both values, or is empty. It compares meaning, not
// bytes: another version of the JSON encoder may escape differently, and an old archive must stay readable.
func (l manifestLine) difference(other manifestLine) string {
	size := func(p *int64) string {
		if p == nil {
			return "none"
		}
		return fmt.Sprint(*p)
	}
	for _, field := range []struct{ name, a, b string }{
		{"path", l.path(), other.path()},
		{"kind", string(l.Kind), string(other.Kind)},
		{"mode", l.Mode, other.Mode},
		{"mtime", l.MTime, other.MTime},
		{"size", size(l.Size), size(other.Size)},
		{"sha256", l.SHA256, other.SHA256},
		{"target", l.skipped().Target, other.skipped().Target},
		{"skipped", l.Skipped, other.Skipped},
		{"schema", l.Schema, other.Schema},
	} {
		if field.a != field.b {
			return fmt.Sprintf("%s is %q in the manifest and %q in the archive", field.name, field.a, field.b)
		}
	}
	return ""
}

func (l manifestLine) encode() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text) // ends the line too
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(l); err != nil {
		return nil, fmt.Errorf("encode the manifest: %w", err)
	}
	return text.Bytes(), nil
}

// splitUTF8 returns the text as a string when JSON can carry it, else as bytes.
func splitUTF8(text string) (string, []byte) {
	if utf8.ValidString(text) {
		return text, nil
	}
	return "", []byte(text)
}

func joinUTF8(text string, raw []byte) string {
	if text != "" {
		return text
	}
	return string(raw)
}

// formatTime writes a time as decimal seconds since 1970. Unlike RFC 3339 that has no last year, and a file system may
// hold any time.
func formatTime(t time.Time) string {
	seconds, nanos, sign := t.Unix(), int64(t.Nanosecond()), ""
	if seconds < 0 {
		sign = "-"
		seconds = -seconds
		if nanos > 0 {
			seconds, nanos = seconds-1, 1_000_000_000-nanos
		}
	}
	return fmt.Sprintf("%s%d.%09d", sign, seconds, nanos)
}
