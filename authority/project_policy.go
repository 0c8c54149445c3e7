package authority

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A project's executionWorkspacePolicy is an object that its owners keep, and of which Berth reads
// what it knows. Who may let tasks write into the project's shared files is in
//
//	{"authorizationPolicy": {"assignmentPolicy": {"mode": "protected"}}}
//
// where the mode is company_default, which is also what holds where nothing is said, or protected.

const (
	assignmentCompanyDefault = "company_default"
	assignmentProtected      = "protected"
)

// assignmentMode reads the mode of a project's assignment policy. An error means that something is
// said which is not understood; whoever asks treats that as a no.
func assignmentMode(policy json.RawMessage) (string, error) {
	document, said := policy, policy != nil
	for _, name := range []string{"authorizationPolicy", "assignmentPolicy"} {
		var err error
		if document, said, err = memberOf(document, said, name); err != nil {
			return "", err
		}
	}
	if !said {
		return assignmentCompanyDefault, nil
	}
	value, said, err := memberOf(document, said, "mode")
	if err != nil {
		return "", err
	}
	if !said {
		return "", errors.New("the assignment policy has no mode")
	}
	var mode string
	if err := json.Unmarshal(value, &mode); err != nil {
		return "", fmt.Errorf("read the assignment policy's mode: %w", err)
	}
	if mode != assignmentCompanyDefault && mode != assignmentProtected {
		return "", fmt.Errorf("the assignment policy's mode %q is not known", mode)
	}
	return mode, nil
}

// memberOf returns a member of an object by its exact name. Where nothing is said, or null, it says
// nothing.
func memberOf(document json.RawMessage, said bool, name string) (json.RawMessage, bool, error) {
	if !said || string(document) == "null" {
		return nil, false, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(document, &members); err != nil {
		return nil, false, fmt.Errorf("look for %s: %w", name, err)
	}
	value, there := members[name]
	return value, there && string(value) != "null", nil
}
