package api

import (
	"context"
	"net/http"

	"berth/authority"
)

// TakeoverRequest ends a writer's tenure by hand.
type TakeoverRequest struct {
	Reason     string `json:"reason" minLength:"1" maxLength:"2000" doc:"Kept in the history."`
	AcceptRisk bool   `json:"acceptRisk,omitempty" doc:"Go on without proof that the writer stopped. The history keeps that, too."`
}

func (s *server) takeovers() {
	register(s, endpoint{
		id: "takeOverWorkspace", method: http.MethodPost, path: "/api/execution-workspaces/{workspaceId}/takeover",
		tag: "tenures", summary: "End a writer's tenure by hand",
		doc: "For operators. The old epoch is dead at once, and unsaved work is given up. Without proof that the writer stopped: 409 takeover_needs_proof with details.missingProof [{leaseId, provider, reason}], unless acceptRisk is true. 409 no_writer when there is none.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		Body TakeoverRequest
	},
	) (*Answer[ExecutionWorkspace], error) {
		workspace, err := s.rules.Takeover(ctx, by, in.WorkspaceID, authority.TakeoverInput{
			Reason: in.Body.Reason, AcceptRisk: in.Body.AcceptRisk,
		})
		return answer(workspace, err, workspaceOf)
	})
}
