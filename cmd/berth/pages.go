package main

import (
	"encoding/json"
	"iter"
	"net/http"
)

// pageSize is the largest that the API gives.
const pageSize = int64(200)

// page is a part of a list as the API answers it.
type page struct {
	Items      []json.RawMessage `json:"items"`
	NextCursor *string           `json:"nextCursor"`
}

// item is one object of a list.
type item[T any] struct {
	value T
	json  json.RawMessage
}

// pages goes through a whole list. fetch asks for the part behind the cursor.
func pages[T any](fetch func(limit *int64, cursor *string) (*http.Response, error)) iter.Seq2[item[T], error] {
	return func(yield func(item[T], error) bool) {
		var cursor *string
		for {
			limit := pageSize
			part, err := read[page](fetch(&limit, cursor))
			if err != nil {
				yield(item[T]{}, err)
				return
			}
			for _, raw := range part.value.Items {
				it := item[T]{json: raw}
				err := json.Unmarshal(raw, &it.value)
				if !yield(it, err) || err != nil {
					return
				}
			}
			if cursor = part.value.NextCursor; cursor == nil {
				return
			}
		}
	}
}
