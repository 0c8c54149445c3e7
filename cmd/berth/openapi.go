package main

import (
	"io"

	"berth/api"
)

type openapiCommand struct{}

// Run prints the document of the API. It needs no server and no database.
func (openapiCommand) Run(stdout io.Writer) error {
	document, err := api.OpenAPI()
	if err != nil {
		return err
	}
	_, err = stdout.Write(document)
	return err
}
