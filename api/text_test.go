package api

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTextOfABodyIsCheckedBeforeItIsDecoded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want []string // locations
	}{
		"plain":                  {`{"a":"b","c":[1,2.5e3,true,null]}`, nil},
		"not JSON":               {`{"a":`, nil},
		"nothing":                {``, nil},
		"escaped NUL":            {`{"a":"x\u0000y"}`, []string{"body.a"}},
		"raw NUL":                {"{\"a\":\"x\x00y\"}", []string{"body.a"}},
		"NUL outside a string":   {"{\"a\":\x001}", nil},
		"invalid UTF-8":          {"{\"a\":\"\xff\"}", []string{"body.a"}},
		"overlong encoding":      {"{\"a\":\"\xc0\x80\"}", []string{"body.a"}},
		"surrogate as UTF-8":     {"{\"a\":\"\xed\xa0\x80\"}", []string{"body.a"}},
		"lonely high surrogate":  {`{"a":"\ud800"}`, []string{"body.a"}},
		"lonely low surrogate":   {`{"a":"\udc00x"}`, []string{"body.a"}},
		"two high surrogates":    {`{"a":"\ud800\ud800"}`, []string{"body.a"}},
		"pair":                   {`{"a":"\ud83d\ude00"}`, nil},
		"escaped backslash":      {`{"a":"\\ud800"}`, nil},
		"replacement character":  {`{"a":"\ufffd"}`, nil},
		"in an array":            {`{"a":[{"b":"ok"},{"b":"\u0000"}]}`, []string{"body.a[1].b"}},
		"in a name":              {`{"a":{"\u0000":1}}`, []string{"body.a"}},
		"more than one":          {`{"a":"\u0000","b":{"c":"\u0000"}}`, []string{"body.a", "body.b.c"}},
		"given twice":            {`{"a":1,"a":2}`, []string{"body.a"}},
		"twice by an escape":     {`{"a":1,"\u0061":2}`, []string{"body.a"}},
		"twice in siblings":      {`{"a":{"x":1},"b":{"x":1}}`, nil},
		"number too large":       {`{"a":1e400}`, []string{"body.a"}},
		"number too small":       {`{"a":1e-400}`, []string{"body.a"}},
		"zero":                   {`{"a":-0.0e-400}`, nil},
		"number with many digit": {`{"a":0.` + strings.Repeat("1", 100) + `}`, []string{"body.a"}},
		"top-level string":       {`"\u0000"`, []string{"body"}},
		"as deep as allowed":     {strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), nil},
		"deep":                   {strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), []string{"body" + strings.Repeat("[0]", maxDepth)}},
	} {
		var got []string
		for _, p := range checkText([]byte(c.body)) {
			got = append(got, p.Location)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q is wrong at %q, want %q", name, c.body, got, c.want)
		}
	}
}

func TestTextThatPassesIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body := slices.Concat([]byte(`{"a":"`), rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"), []byte(`"}`))
		if len(checkText(body)) > 0 {
			return
		}
		var decoded map[string]string
		if json.Unmarshal(body, &decoded) != nil {
			return // whoever parses it says so
		}
		text := decoded["a"]
		if strings.ContainsRune(text, 0) {
			t.Fatalf("%q passed with a NUL", body)
		}
		if strings.ContainsRune(text, utf8.RuneError) && !bytes.Contains(body, []byte("\ufffd")) &&
			!bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`)) {
			t.Fatalf("%q passed, and was changed to %q", body, text)
		}
	})
}

func TestAnyBytesAreCheckedWithoutAPanic(t *testing.T) {
	t.Parallel()
	pieces := rapid.SampledFrom([]string{
		"{", "}", "[", "]", ",", ":", `"`, `\`, `\u`, `\ud800`, `\u00`, "0", "1e", "\x00", "\xff", " ", "true", `"a"`, `{"a":`,
	})
	rapid.Check(t, func(t *rapid.T) {
		checkText([]byte(strings.Join(rapid.SliceOf(pieces).Draw(t, "pieces"), "")))
	})
}

func TestQueryIsCheckedAsTextToo(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"limit=1&cursor=abc": "",
		"cursor=%00":         "query.cursor",
		"cursor=%ff":         "query.cursor",
		"%ff=1":              "query.?",
		"limit=%zz":          "query",
		"limit=1;cursor=2":   "query",
		"limit=1&limit=2":    "query.limit",
	} {
		got := ""
		if problems := checkQuery(query); len(problems) > 0 {
			got = problems[0].Location
		}
		if got != want {
			t.Errorf("%q is wrong at %q, want %q", query, got, want)
		}
	}
}
