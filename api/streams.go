package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth/authority"
)

// ContentUpload is a snapshot's archive on its way in.
type ContentUpload struct {
	SnapshotPath
	content *upload
}

// Resolve takes the body as the stream that it is. Huma calls it once the parameters are known to be valid.
func (in *ContentUpload) Resolve(ctx huma.Context) []error {
	in.content = &upload{ctx: ctx, body: ctx.BodyReader()}
	return nil
}

// upload reads a body that may be large, and remembers when the fault was the sender's.
type upload struct {
	ctx      huma.Context
	body     io.Reader
	patience time.Duration // for the next piece
	err      error
}

func (u *upload) Read(p []byte) (int, error) {
	_ = u.ctx.SetReadDeadline(time.Now().Add(u.patience)) // a recorder in a test has none
	n, err := u.body.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		_ = u.ctx.SetReadDeadline(time.Time{}) // what follows may take its time
	default:
		u.err = err
	}
	return n, err
}

// blame turns the failure of an upload whose sender broke off into a problem that says so.
func (u *upload) blame(err error) error {
	if err == nil || u.err == nil {
		return err
	}
	var network net.Error
	if errors.As(u.err, &network) && network.Timeout() {
		return transportProblem(http.StatusRequestTimeout, nil)
	}
	return incompleteBody()
}

// download answers with a snapshot's archive. A failure on the way cuts the connection, so that a part of an archive
// never looks like a whole one.
func (s *server) download(content io.ReadCloser, snapshot authority.Snapshot) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		defer content.Close()
		ctx.SetHeader("Content-Type", "application/octet-stream")
		if snapshot.Size != nil {
			ctx.SetHeader("Content-Length", strconv.FormatInt(*snapshot.Size, 10))
		}
		if snapshot.SHA256 != nil {
			ctx.SetHeader("ETag", `"`+*snapshot.SHA256+`"`)
		}
		ctx.SetStatus(http.StatusOK)
		_, w := unwrap(ctx)
		if ctx.Method() == http.MethodHead {
			return
		}
		out := &downloadWriter{to: w, deadlines: http.NewResponseController(w), patience: s.patience}
		if _, err := io.Copy(out, content); err != nil {
			s.cutShort(ctx.Context(), fmt.Errorf("send snapshot %s: %w", snapshot.ID, err))
		}
		_ = out.deadlines.SetWriteDeadline(time.Time{})
	}}
}

// cutShort gives an answer up whose beginning has been sent.
func (s *server) cutShort(ctx context.Context, err error) {
	s.log.WarnContext(ctx, "answer cut short", "requestId", exchangeOf(ctx).id, "error", err)
	panic(http.ErrAbortHandler)
}

type downloadWriter struct {
	to        io.Writer
	deadlines *http.ResponseController
	patience  time.Duration // for the next piece
}

func (w *downloadWriter) Write(p []byte) (int, error) {
	_ = w.deadlines.SetWriteDeadline(time.Now().Add(w.patience)) // a recorder in a test has none
	return w.to.Write(p)
}
