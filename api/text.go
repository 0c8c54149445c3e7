package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxDepth is how deep objects and arrays may be nested. The deepest that Berth itself takes is 4.
	maxDepth = 64
	// maxDigits is how long a number may be written.
	maxDigits = 64

	messageUTF8      = "is not valid UTF-8"
	messageNUL       = "contains a NUL character"
	messageSurrogate = `contains half of a surrogate pair (\ud800 to \udfff)`
)

// checkText finds the strings of a JSON body that are not text: invalid UTF-8, NUL, unpaired surrogates. It looks at
// the raw bytes, since encoding/json quietly puts U+FFFD in the place of such bytes, and the database refuses the
// rest. With them go names that are given twice, of which a reader would silently take one, numbers that no double
// can hold, and nesting that no reader needs.
//
// A body that is not JSON passes: whoever parses it says so better.
func checkText(body []byte) []FieldProblem {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	w := textWalk{body: body, dec: dec, path: []string{"body"}}
	if err := w.value(); err != nil {
		w.nulIn(err)
	}
	return w.problems
}

type textWalk struct {
	body     []byte
	dec      *json.Decoder
	path     []string
	problems []FieldProblem
}

// errTooMuch ends the walk early: what is wrong is known.
var errTooMuch = errors.New("enough problems")

func (w *textWalk) complain(message string) error {
	location := cut(strings.Join(w.path, ""), 1000)
	w.problems = append(w.problems, FieldProblem{Location: location, Message: message})
	if len(w.problems) >= 20 {
		return errTooMuch
	}
	return nil
}

// next is the next token with the bytes that it was read from, which may begin with white space, a comma or a colon.
func (w *textWalk) next() (json.Token, []byte, error) {
	from := w.dec.InputOffset()
	token, err := w.dec.Token()
	if err != nil {
		return nil, nil, err
	}
	return token, w.body[from:w.dec.InputOffset()], nil
}

func (w *textWalk) value() error {
	token, raw, err := w.next()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		if len(w.path) > maxDepth {
			_ = w.complain(fmt.Sprintf("is nested deeper than %d levels", maxDepth))
			return errTooMuch
		}
		if token == '{' {
			return w.object()
		}
		return w.array()
	case string:
		if message := textProblem(token, raw); message != "" {
			return w.complain(message)
		}
	case json.Number:
		if !doubleHolds(string(token)) {
			return w.complain("is a number out of range, or with too many digits")
		}
	}
	return nil
}

func (w *textWalk) object() error {
	seen := map[string]struct{}{}
	for w.dec.More() {
		token, raw, err := w.next()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		if !ok {
			return errTooMuch // not JSON: left to the parser
		}
		if message := textProblem(name, raw); message != "" {
			if err := w.complain("has a name that " + message); err != nil {
				return err
			}
			name = "?"
		}
		if err := w.member(name, seen); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

func (w *textWalk) member(name string, seen map[string]struct{}) error {
	w.path = append(w.path, "."+name)
	if _, twice := seen[name]; twice {
		if err := w.complain("is given twice"); err != nil {
			return err
		}
	}
	seen[name] = struct{}{}
	if err := w.value(); err != nil {
		return err
	}
	w.path = w.path[:len(w.path)-1]
	return nil
}

func (w *textWalk) array() error {
	for i := 0; w.dec.More(); i++ {
		w.path = append(w.path, "["+strconv.Itoa(i)+"]")
		if err := w.value(); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
	}
	_, err := w.dec.Token()
	return err
}

// nulIn tells of a NUL byte that the decoder stumbled over inside a string: to its grammar a body with one is broken,
// to the caller the field is.
func (w *textWalk) nulIn(err error) {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && strings.Contains(syntax.Error(), `'\x00' in string`) {
		_ = w.complain(messageNUL)
	}
}

// textProblem says what is wrong with a string, or nothing. raw is how it was written.
func textProblem(value string, raw []byte) string {
	switch {
	case !utf8.Valid(raw):
		return messageUTF8
	case strings.ContainsRune(value, 0):
		return messageNUL
	case halfSurrogate(raw):
		return messageSurrogate
	default:
		return ""
	}
}

// halfSurrogate finds an escape of a surrogate that is not half of a pair, in the text of a valid JSON string.
func halfSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++ // what is escaped; a valid string does not end here
		if raw[i] != 'u' {
			continue
		}
		unit := escapedUnit(raw[i+1:])
		i += 4
		if !utf16.IsSurrogate(unit) {
			continue
		}
		if i+2 >= len(raw) || raw[i+1] != '\\' || raw[i+2] != 'u' ||
			utf16.DecodeRune(unit, escapedUnit(raw[i+3:])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escapedUnit reads the four digits of a \u escape.
func escapedUnit(digits []byte) rune {
	unit, err := strconv.ParseUint(string(digits[:4]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(unit)
}

// doubleHolds reports whether a JSON number is neither too large nor too small nor too long for what reads it: a
// double in most clients, numeric in the database.
func doubleHolds(number string) bool {
	if len(number) > maxDigits {
		return false
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return false
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(number), "e")
	return f != 0 || !strings.ContainsAny(mantissa, "123456789")
}

// checkQuery does for the query of a URL what checkText does for a body. It also refuses a query that cannot be
// read, of which net/url would keep the readable part.
func checkQuery(raw string) []FieldProblem {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return []FieldProblem{{Location: "query", Message: "cannot be read: escape ; and % in it"}}
	}
	problems := []FieldProblem{}
	for name, all := range values {
		for _, text := range append([]string{name}, all...) {
			if message := textProblem(text, []byte(text)); message != "" {
				where := "query." + cut(strings.ToValidUTF8(name, "?"), 100)
				problems = append(problems, FieldProblem{Location: where, Message: message})
			}
		}
		if len(all) > 1 {
			problems = append(problems, FieldProblem{Location: "query." + cut(strings.ToValidUTF8(name, "?"), 100), Message: "is given twice"})
		}
	}
	slices.SortFunc(problems, func(a, b FieldProblem) int { return strings.Compare(a.Location, b.Location) })
	return problems
}

// queryObject reads a JSON object that came as the text of a query parameter; no text is no object.
func queryObject(location, value string) (*Object, error) {
	if value == "" {
		return nil, nil //nolint:nilnil // an absent parameter is no failure
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &object); err != nil || object == nil {
		return nil, invalid([]FieldProblem{{Location: location, Message: "is not a JSON object"}})
	}
	if problems := checkText([]byte(value)); len(problems) > 0 {
		for i, p := range problems {
			problems[i].Location = location + strings.TrimPrefix(p.Location, "body")
		}
		return nil, invalid(problems)
	}
	out := Object(value)
	return &out, nil
}
