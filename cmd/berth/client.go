package main

import (
	"os"
	"path/filepath"
	"strings"
)

// defaultURL is where the service is unless somebody says otherwise.
const defaultURL = "http://127.0.0.1:8080"

// programName is how a person calls this program again: by its name, or by go
// run, whose binary is gone afterwards.
func programName() string {
	if strings.Contains(filepath.ToSlash(os.Args[0]), "/go-build") {
		return "go run ./cmd/berth"
	}
	return os.Args[0]
}
