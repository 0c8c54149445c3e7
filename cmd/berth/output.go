package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
)

// outputFlag is how a command prints what it got.
type outputFlag struct {
	Output string `short:"o" enum:"text,json" default:"text" help:"text for people, or json: the API's own objects."`
}

func (f outputFlag) json() bool { return f.Output == "json" }

// printJSON prints a document of the API as it is, indented.
func printJSON(w io.Writer, document json.RawMessage) error {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(document), "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err := out.WriteTo(w)
	return err
}

// table prints rows below headings, in columns.
func table(w io.Writer, headings []string, rows [][]string) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{headings}, rows...) {
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	return columns.Flush()
}

// printObject prints the members of a JSON object in their order, one a line;
// those of objects in it by their path.
func printObject(w io.Writer, document json.RawMessage) error {
	lines, err := flatten("", document)
	if err != nil {
		return err
	}
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintf(columns, "%s\t%s\n", line.path, printable(line.value))
	}
	return columns.Flush()
}

type member struct{ path, value string }

// flatten lists the members of an object, which a map would bring out of order.
func flatten(prefix string, document json.RawMessage) ([]member, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	var members []member
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		path := fmt.Sprint(prefix, key)
		var text string
		switch {
		case value[0] == '{' && len(value) > 2:
			inner, err := flatten(path+".", value)
			if err != nil {
				return nil, err
			}
			members = append(members, inner...)
			continue
		case string(value) == "null":
			text = none
		case json.Unmarshal(value, &text) != nil:
			text = string(value)
		}
		members = append(members, member{path, text})
	}
	return members, nil
}

const none = "-"

func orNone(text string) string {
	if text == "" {
		return none
	}
	return text
}

func idOrNone(id *uuid.UUID) string {
	if id == nil {
		return none
	}
	return id.String()
}

// printable makes a text of somebody's safe to show in a terminal: what would
// move the cursor or break a table becomes a space.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text)
}

// shortTime is a time to the second, in UTC as everywhere in Berth.
func shortTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func shortTimeOrNone(t *time.Time) string {
	if t == nil {
		return none
	}
	return shortTime(*t)
}

// shortTimeText is the same for a time that comes as text.
func shortTimeText(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return shortTime(t)
}
