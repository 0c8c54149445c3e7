package authority

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func once(key, request string) Once {
	digest := sha256.Sum256([]byte(request))
	return Once{Key: key, Digest: digest[:]}
}

func TestACreateWithTheSameKeyAnswersTheFirstAgain(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	for name, policy := range map[string]json.RawMessage{"none": nil, "some": json.RawMessage(`{"b": [1, null], "a": "x"}`)} {
		in := ProjectInput{Name: "Project", ExecutionWorkspacePolicy: policy}
		first := must(d.CreateProject(t.Context(), d.operator, company, in, once(name, "create")))(t)
		again := must(d.CreateProject(t.Context(), d.operator, company, in, once(name, "create")))(t)
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("policy %s: the second answer is another one (-first +second):\n%s", name, diff)
		}
	}
	if list := must(d.ListProjects(t.Context(), d.operator, company, Page{}))(t); len(list.Items) != 2 {
		t.Errorf("%d projects were made, want 2", len(list.Items))
	}
}

func TestAKeyThatComesBackWithAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	must(d.CreateProject(t.Context(), d.operator, company, ProjectInput{Name: "One"}, once("key", "one")))(t)
	_, err := d.CreateProject(t.Context(), d.operator, company, ProjectInput{Name: "Two"}, once("key", "two"))
	wantRefusal(t, "the key with another request", err, ErrIdempotencyKey)
	if list := must(d.ListProjects(t.Context(), d.operator, company, Page{}))(t); len(list.Items) != 1 {
		t.Errorf("%d projects were made, want 1", len(list.Items))
	}
}

func TestOfFiftyAtOnceWithOneKeyOneMakes(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	answers := make([]Agent, 50)
	failures := make([]error, len(answers))
	var calls sync.WaitGroup
	for i := range answers {
		calls.Go(func() {
			answers[i], failures[i] = d.CreateAgent(t.Context(), d.operator, company,
				AgentInput{Name: "Agent", AdapterType: "process"}, once("key", "create"))
		})
	}
	calls.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		if diff := cmp.Diff(answers[0], answer); diff != "" {
			t.Fatalf("two callers got two answers:\n%s", diff)
		}
	}
	if list := must(d.ListAgents(t.Context(), d.operator, company, Page{}))(t); len(list.Items) != 1 {
		t.Errorf("%d agents were made, want 1", len(list.Items))
	}
}

func TestAKeyBelongsToOnePrincipalAndOneCompany(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	here, there := d.company(), d.company()
	another := Principal{Role: RoleOperator, TokenID: uuid.New()}
	in := AgentInput{Name: "Agent", AdapterType: "process"}
	first := must(d.CreateAgent(t.Context(), d.operator, here, in, once("key", "a")))(t)
	elsewhere := must(d.CreateAgent(t.Context(), d.operator, there, in, once("key", "b")))(t)
	somebody := must(d.CreateAgent(t.Context(), another, here, in, once("key", "c")))(t)
	if first.ID == elsewhere.ID || first.ID == somebody.ID {
		t.Error("a key of another company or principal was taken for this one")
	}
}

func TestAKeyIsFreeAfterADay(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	in := AgentInput{Name: "Agent", AdapterType: "process"}
	age := func(by string) {
		d.asOwner("UPDATE idempotency_keys SET created_at = created_at - $1::interval", by)
	}
	first := must(d.CreateAgent(t.Context(), d.operator, company, in, once("key", "a")))(t)
	age("23 hours 59 minutes")
	if again := must(d.CreateAgent(t.Context(), d.operator, company, in, once("key", "a")))(t); again.ID != first.ID {
		t.Error("within the day the key made a second agent")
	}
	if forgotten := must(d.ForgetAnswers(t.Context()))(t); forgotten != 0 {
		t.Errorf("%d answers were forgotten within the day", forgotten)
	}
	age("2 minutes")
	later := must(d.CreateAgent(t.Context(), d.operator, company, in, once("key", "another request")))(t)
	if later.ID == first.ID {
		t.Error("after a day the key still answered the first agent")
	}
	age("2 days")
	if forgotten := must(d.ForgetAnswers(t.Context()))(t); forgotten != 1 {
		t.Errorf("%d answers were forgotten after the day, want 1", forgotten)
	}
}

func TestWhatIsRefusedIsNotKeptUnderTheKey(t *testing.T) {
	t.Parallel()
	d := newDirectory(t)
	company := d.company()
	unknown := uuid.New()
	in := AgentInput{Name: "Agent", AdapterType: "process", ReportsToAgentID: &unknown}
	_, err := d.CreateAgent(t.Context(), d.operator, company, in, once("key", "a"))
	wantRefusal(t, "an unknown superior", err, ErrAgentNotFound)
	in.ReportsToAgentID = nil
	_, err = d.CreateAgent(t.Context(), d.operator, company, in, once("key", "b"))
	wantRefusal(t, "the same key after a refusal", err, nil)
}
