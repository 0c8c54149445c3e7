package main

import (
	"strings"
	"testing"
	"time"
)

func TestAnOperatorAsksAWriterToStopAndEverybodySeesIt(t *testing.T) {
	t.Parallel()
	s := task(t, "STOP")
	refused(t, s.berth(t, "stop", "STOP-1", "--reason", "maintenance"), exitFailed, "no_writer", "Next: berth history")
	held := reserve(t, s, "STOP-2")
	refused(t, s.berth(t, "stop", "STOP-1", "--reason", "maintenance", "--deadline", "soon"), exitUsage, "neither a duration")
	asked := s.must(t, "stop", "STOP-1", "--reason", "maintenance", "--deadline", "2h", "-o", "json")
	if deadline, err := time.Parse(time.RFC3339, memberOf(t, asked, "deadline").(string)); err != nil || time.Until(deadline) < time.Hour || time.Until(deadline) > 3*time.Hour {
		t.Errorf("two hours from now on are %v, %v", deadline, err)
	}
	wants(t, s.must(t, "show", "workspace", "STOP-1"), "asked to stop by", "(requested): maintenance")
	r := s.berth(t, "reserve", "--issue", "STOP-3")
	refused(t, r, exitRefused, "asked to stop by", "maintenance")
	renewed := s.berthAs(t, held, "renew")
	wants(t, renewed.stdout+renewed.stderr, "maintenance")
	wants(t, s.must(t, "stop", "STOP-1", "--reason", "sooner", "--deadline", "2000-01-01T00:00:00Z"), "is asked to stop by 2000-01-01T00:00:00Z")
	history := s.must(t, "history", "STOP-1")
	wants(t, history, "to stop by 2000-01-01T00:00:00Z: sooner", "came to its end (superseded)")
	if strings.Contains(s.must(t, "show", "workspace", "STOP-1"), "maintenance") {
		t.Error("what was superseded is shown as what counts")
	}
}
