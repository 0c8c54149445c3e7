package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"berth/authority"
)

// Time is an instant as the API writes it: RFC 3339, UTC, always with microseconds and Z, so that the texts sort as
// the instants do. It reads any RFC 3339 time of the years 1 to 9999.
type Time time.Time

const timeLayout = "2006-01-02T15:04:05.000000Z"

// MarshalJSON writes the time in UTC.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + time.Time(t).UTC().Format(timeLayout) + `"`), nil
}

// UnmarshalJSON reads an RFC 3339 time.
func (t *Time) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	parsed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return errors.New("expected an RFC 3339 time")
	}
	parsed = parsed.UTC()
	if parsed.Year() < 1 || parsed.Year() > 9999 {
		return errors.New("expected a time of the years 1 to 9999")
	}
	*t = Time(parsed.Truncate(time.Microsecond)) // the precision that is kept
	return nil
}

// Schema describes the type in the document.
func (Time) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

func timeOf(t *time.Time) *Time { return (*Time)(t) }

func (t *Time) pointer() *time.Time { return (*time.Time)(t) }

func instant(t Time) time.Time { return time.Time(t) }

// Object is a JSON object whose members the API does not know. Its zero value is written as {}.
type Object json.RawMessage

// MarshalJSON writes the object.
func (o Object) MarshalJSON() ([]byte, error) {
	if len(o) == 0 {
		return []byte("{}"), nil
	}
	return o, nil
}

// UnmarshalJSON keeps the object as it came.
func (o *Object) UnmarshalJSON(data []byte) error {
	*o = bytes.Clone(data)
	return nil
}

// Schema describes the type in the document.
func (Object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
}

// objectOf is raw as an object that may be null.
func objectOf(raw json.RawMessage) *Object {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return (*Object)(&raw)
}

// raw is the object as the rules take it: nil when there is none.
func (o *Object) raw() json.RawMessage {
	if o == nil {
		return nil
	}
	return json.RawMessage(*o)
}

// OrNull is an answer's value of a named type, or null. Huma cannot say "null or this $ref" by a tag; values of
// plain types are pointers with the tag nullable instead.
type OrNull[T any] struct{ Value *T }

// orNull converts what is there.
func orNull[From, T any](from *From, convert func(From) T) OrNull[T] {
	if from == nil {
		return OrNull[T]{}
	}
	value := convert(*from)
	return OrNull[T]{Value: &value}
}

// MarshalJSON writes the value or null.
func (n OrNull[T]) MarshalJSON() ([]byte, error) { return json.Marshal(n.Value) }

// Schema describes the type in the document.
func (OrNull[T]) Schema(r huma.Registry) *huma.Schema {
	return orNullSchema(r.Schema(reflect.TypeFor[T](), true, ""))
}

// Change is a member of a PATCH that may be absent (leave it), null (clear it) or a value. Give it the JSON option
// omitzero, and the tags of T.
type Change[T any] struct {
	Set   bool
	Value *T
}

// UnmarshalJSON notes that the member was there. It is not called for one that is absent.
func (c *Change[T]) UnmarshalJSON(data []byte) error {
	c.Set = true
	return json.Unmarshal(data, &c.Value)
}

// Schema describes the type in the document.
func (Change[T]) Schema(r huma.Registry) *huma.Schema {
	s := r.Schema(reflect.TypeFor[T](), true, "")
	if s.Ref != "" {
		return orNullSchema(s)
	}
	s.Nullable = true
	return s
}

// orNullSchema is "this $ref or null". Huma's validator knows no type null, hence the enum of one.
func orNullSchema(s *huma.Schema) *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{s, {Type: "null", Enum: []any{nil}}}}
}

// change converts c to what the rules take.
func change[From, T any](c Change[From], convert func(From) T) authority.Optional[T] {
	out := authority.Optional[T]{Set: c.Set}
	if c.Value != nil {
		value := convert(*c.Value)
		out.Value = &value
	}
	return out
}

// same is the conversion of what needs none.
func same[T any](v T) T { return v }

// QueryID is an optional id in the query, which huma cannot take as a pointer.
type QueryID struct {
	ID  uuid.UUID
	Set bool
}

// Receiver tells huma where to put the parsed value.
func (q *QueryID) Receiver() reflect.Value { return reflect.ValueOf(&q.ID).Elem() }

// OnParamSet hears from huma whether the parameter was there.
func (q *QueryID) OnParamSet(set bool, _ any) { q.Set = set }

// Schema describes the type in the document.
func (QueryID) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "uuid"}
}

func (q QueryID) pointer() *uuid.UUID {
	if !q.Set {
		return nil
	}
	return &q.ID
}

// text is a string of a named type, or nil: how optional enums and strings of a query go to the rules.
func text[T ~string](value T) *string {
	if value == "" {
		return nil
	}
	out := string(value)
	return &out
}

// textOf converts an optional enum of a body.
func textOf[T ~string](value *T) *string {
	if value == nil {
		return nil
	}
	out := string(*value)
	return &out
}

// QueryInt is an optional whole number in the query.
type QueryInt struct {
	Number int64
	Set    bool
}

// Receiver tells huma where to put the parsed value.
func (q *QueryInt) Receiver() reflect.Value { return reflect.ValueOf(&q.Number).Elem() }

// OnParamSet hears from huma whether the parameter was there.
func (q *QueryInt) OnParamSet(set bool, _ any) { q.Set = set }

// Schema describes the type in the document.
func (QueryInt) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64"}
}

func (q QueryInt) pointer() *int64 {
	if !q.Set {
		return nil
	}
	return &q.Number
}
