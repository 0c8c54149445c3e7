package main

import (
	"context"
	"runtime/debug"
	"time"
)

// memoryEvery is how often the service gives back what a burst of requests needed and nobody needs any more. Thousands of
// requests that arrive together and then wait leave garbage that the collector, which runs by what is allocated, may
// not look at for minutes. A collection of the service's few megabytes takes milliseconds.
const memoryEvery = 20 * time.Second

// giveMemoryBack does so until ctx ends.
func giveMemoryBack(ctx context.Context) {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			debug.FreeOSMemory()
		case <-ctx.Done():
			return
		}
	}
}
