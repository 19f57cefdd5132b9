package api

// Operations are all operations.
var Operations = []*Op{
	ListEntities.Op, CreateEntity.Op, ShowEntity.Op, UpdateEntity.Op, DeleteEntity.Op, ListChildren.Op,
	ShowLimits.Op, SetLimits.Op, DeleteLimits.Op, ListLimits.Op, ListResources.Op, ListPlans.Op, DeletePlan.Op,
	ShowSystem.Op, SetSystem.Op,
	ListNamespaces.Op, CreateNamespace.Op, ShowNamespace.Op, UpdateNamespace.Op, DeleteNamespace.Op,
	RecoverNamespace.Op, PurgeNamespace.Op,
	ExportManifest.Op, ListManifests.Op, ListRevisions.Op, ShowRevision.Op,
	PlanManifests.Op, DiffManifests.Op, ApplyManifests.Op, RollbackManifest.Op,
	ListUsage.Op, SummarizeUsage.Op, TopUsage.Op,
	Explain.Op, Acquire.Op, Adjust.Op,
	ListAudit.Op, ListBuckets.Op, ShowBucket.Op, ResetBucket.Op, ForgiveBucket.Op,
	ListBalances.Op, AddCredits.Op, ListCredits.Op,
}
