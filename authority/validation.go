package authority

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// validation gathers everything that is wrong with an input, so that the caller hears it at once.
type validation struct {
	refused *Refusal
}

func (v *validation) add(location, message string) {
	if v.refused == nil {
		v.refused = ErrValidation
	}
	v.refused = v.refused.At(location, message)
}

// text wants more than blanks.
func (v *validation) text(location, value string) {
	if strings.TrimSpace(value) == "" {
		v.add(location, "is empty")
	}
}

// oneOf wants one of the values; "" stands for a default, and passes.
func (v *validation) oneOf(location, value string, values []string) {
	if value != "" && !slices.Contains(values, value) {
		v.add(location, "is none of "+strings.Join(values, ", "))
	}
}

// object wants a JSON object, or nothing.
func (v *validation) object(location string, document json.RawMessage) {
	if document != nil && !isObject(document) {
		v.add(location, "is not a JSON object")
	}
}

// err is the refusal of the input, or nil.
func (v *validation) err() error {
	if v.refused == nil {
		return nil
	}
	return v.refused
}

func isObject(document json.RawMessage) bool {
	return json.Valid(document) && bytes.HasPrefix(bytes.TrimLeft(document, " \t\r\n"), []byte("{"))
}

// mustExist is nil when a query answered that a row which the input names is there.
func mustExist(known bool, err error, missing *Refusal, doing string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if !known {
		return missing
	}
	return nil
}
