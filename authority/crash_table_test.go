package authority

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// crashTable is what each moment of an operation came to.
type crashTable struct {
	operation string
	lines     []string
	outcomes  []string
}

// The outcomes of a fault.
const (
	crashNothing = "nothing happened"
	crashPart    = "a part happened"
	crashAll     = "all happened"
)

func (table *crashTable) add(at, before, after, want string) {
	outcome := crashPart
	switch after {
	case want:
		outcome = crashAll
	case before:
		outcome = crashNothing
	}
	table.lines = append(table.lines, fmt.Sprintf("%-18s %s", outcome, cmp.Or(at, "no fault")))
	table.outcomes = append(table.outcomes, outcome)
}

// want shows the table, and fails the test unless it makes sense: one that never comes lets all happen, and nothing
// else is in between, unless the operation has steps that each last.
func (table *crashTable) want(t *testing.T, steps bool) {
	t.Helper()
	t.Logf("%s:\n%s", table.operation, strings.Join(table.lines, "\n"))
	if last := table.outcomes[len(table.outcomes)-1]; last != crashAll {
		t.Errorf("%s: with no fault %s", table.operation, last)
	}
	if !steps && slices.Contains(table.outcomes, crashPart) {
		t.Errorf("%s is one step, and a fault leaves a part of it:\n%s", table.operation, strings.Join(table.lines, "\n"))
	}
}
