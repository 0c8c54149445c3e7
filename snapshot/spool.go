package snapshot

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// spoolMemory is how much of a manifest stays in memory: about four thousand lines.
const spoolMemory = 1 << 20

// spool holds the lines of a manifest until they are needed. Beyond spoolMemory they go to a temporary file that has no
// name any more, so that the memory of a save does not grow with the number of files and a killed process leaves nothing.
type spool struct {
	directory string // where the temporary file is made; "" is the system's place
	memory    bytes.Buffer
	file      *os.File
	buffer    *bufio.Writer
	size      int64
}

func (s *spool) add(line manifestLine) error {
	text, err := line.encode()
	if err != nil {
		return err
	}
	s.size += int64(len(text))
	if s.file == nil && s.size <= spoolMemory {
		s.memory.Write(text)
		return nil
	}
	if s.file == nil {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if _, err := s.buffer.Write(text); err != nil {
		return fmt.Errorf("write the temporary manifest: %w", err)
	}
	return nil
}

func (s *spool) spill() error {
	file, err := os.CreateTemp(s.directory, TemporaryPrefix+"manifest-")
	if err != nil {
		return fmt.Errorf("make a temporary file for the manifest: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		return errors.Join(fmt.Errorf("unlink the temporary manifest: %w", err), file.Close())
	}
	s.file, s.buffer = file, bufio.NewWriterSize(file, copyBufferSize)
	if _, err := s.buffer.Write(s.memory.Bytes()); err != nil {
		return fmt.Errorf("write the temporary manifest: %w", err)
	}
	s.memory = bytes.Buffer{}
	return nil
}

// reader returns everything that was added, from the start.
func (s *spool) reader() (io.Reader, error) {
	if s.file == nil {
		return bytes.NewReader(s.memory.Bytes()), nil
	}
	if err := s.buffer.Flush(); err != nil {
		return nil, fmt.Errorf("write the temporary manifest: %w", err)
	}
	return io.NewSectionReader(s.file, 0, s.size), nil
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close() //nolint:errcheck // it has no name and nobody needs it any more
	}
}
