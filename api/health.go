package api

import (
	"context"
	"net/http"

	"berth/authority"
)

// Health says that the process answers.
type Health struct {
	Status string `json:"status" enum:"ok,ready" doc:"ok: the process answers. ready: the database has the right schema, and the snapshot store is the one that belongs to it."`
}

func (s *server) health() {
	register(s, endpoint{
		id: "getHealth", method: http.MethodGet, path: "/api/health", tag: "service", open: true,
		summary: "Tell that the process answers",
		doc:     "Looks at nothing else: a service that waits for its database is healthy, and not ready.",
	}, func(context.Context, authority.Principal, *struct{}) (*Answer[Health], error) {
		return &Answer[Health]{Body: Health{Status: "ok"}}, nil
	})
	register(s, endpoint{
		id: "getReadiness", method: http.MethodGet, path: "/api/ready", tag: "service", open: true,
		summary: "Tell whether requests will be served",
		doc:     "503 unavailable when the database is out of reach or of another schema, or the snapshot store is not the one that belongs to it.",
	}, func(ctx context.Context, _ authority.Principal, _ *struct{}) (*Answer[Health], error) {
		if err := s.rules.Ready(ctx); err != nil {
			// The cause may quote the database: it is for the log, and for the person who reads that.
			s.log.WarnContext(ctx, "not ready", "requestId", exchangeOf(ctx).id, "error", err)
			return nil, authority.ErrUnavailable.Say("The service is not ready: its database or its snapshot store is not as it should be. The log says what is wrong.")
		}
		return &Answer[Health]{Body: Health{Status: "ready"}}, nil
	})
}
