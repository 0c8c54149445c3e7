package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"berth/authority"
)

// RecoveryTokenCreate opens the recovery of a writer that ended.
type RecoveryTokenCreate struct {
	Epoch      int64   `json:"epoch" minimum:"0" maximum:"9007199254740991" doc:"Of the writer whose work is to be saved. It has to be the current one."`
	Reason     *string `json:"reason,omitempty" minLength:"1" maxLength:"2000" doc:"Kept in the history."`
	AcceptRisk bool    `json:"acceptRisk,omitempty" doc:"Go on without proof that the writer stopped. The history keeps that, too."`
}

// RecoveryToken lets its holder save in the name of one writer that ended.
type RecoveryToken struct {
	ID           uuid.UUID `json:"id" format:"uuid"`
	Token        *string   `json:"token" nullable:"true" maxLength:"200" doc:"The bearer token. It is shown this once: null when an Idempotency-Key is used again."`
	CompanyID    uuid.UUID `json:"companyId" format:"uuid"`
	WorkspaceID  uuid.UUID `json:"workspaceId" format:"uuid"`
	RunID        uuid.UUID `json:"runId" format:"uuid" doc:"In whose name it saves."`
	Epoch        int64     `json:"epoch" minimum:"0" maximum:"9007199254740991" doc:"At which it saves."`
	Reason       *string   `json:"reason" nullable:"true" maxLength:"2000"`
	RiskAccepted bool      `json:"riskAccepted" doc:"It was given without proof that the writer stopped."`
	CreatedBy    string    `json:"createdBy" maxLength:"200"`
	CreatedAt    Time      `json:"createdAt"`
	ExpiresAt    Time      `json:"expiresAt"`
}

func recoveryTokenOf(t authority.RecoveryToken, secret string) RecoveryToken {
	return RecoveryToken{
		ID: t.ID, Token: text(secret), CompanyID: t.CompanyID, WorkspaceID: t.WorkspaceID, RunID: t.RunID, Epoch: t.Epoch,
		Reason: t.Reason, RiskAccepted: t.RiskAccepted, CreatedBy: t.CreatedBy, CreatedAt: Time(t.CreatedAt), ExpiresAt: Time(t.ExpiresAt),
	}
}

func (s *server) recoveryTokens() {
	register(s, endpoint{
		id: "createRecoveryToken", method: http.MethodPost, path: "/api/execution-workspaces/{workspaceId}/recovery-tokens",
		tag: "tenures", status: http.StatusCreated, summary: "Open the recovery of a writer that ended",
		doc: "For operators. The token reads this workspace and its snapshots, and begins, uploads and commits snapshots with the runId and epoch of the answer; it does nothing else, and is worth nothing once the tenure is over: 409 tenure_ended. " +
			"After such a save the workspace is clean, the ended run is still its writer, and a reservation gets it by handover, on proof. " +
			"409 recovery_needs_stop with details {runId, runStatus, missingProof [{leaseId, provider, reason}]}: when runStatus is not final the run has to be finished first, whatever is accepted; else not every machine is proven stopped, unless acceptRisk is true. " +
			"409 tenure_ended, stale_epoch or no_writer when there is no such writer.",
	}, func(ctx context.Context, by authority.Principal, in *struct {
		WorkspacePath
		IdempotencyKey
		Body RecoveryTokenCreate
	},
	) (*Answer[RecoveryToken], error) {
		token, secret, err := s.rules.CreateRecoveryToken(ctx, by, in.WorkspaceID, authority.RecoveryInput{
			Epoch: in.Body.Epoch, Reason: in.Body.Reason, AcceptRisk: in.Body.AcceptRisk,
		}, in.once(ctx))
		return answer(token, err, func(t authority.RecoveryToken) RecoveryToken { return recoveryTokenOf(t, secret) })
	})
}
