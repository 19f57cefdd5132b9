package cloud

import (
	"maps"
	"slices"
	"strings"
)

// named returns a name for a resource that CloudFormation names by itself.
func (p props) named(id string) string {
	return strings.ToLower(p.module.stack.name + "-" + strings.ReplaceAll(snake(id), "_", "-"))
}

func groupBody(p props, _ string) obj {
	var out list
	for _, e := range p.all("SecurityGroupEgress") {
		out = append(out, obj{
			"protocol": e.of["IpProtocol"], "cidr_blocks": list{e.of["CidrIp"]}, "description": e.of["Description"], "from_port": 0, "to_port": 0,
			// Terraform's JSON requires every attribute of such a block.
			"ipv6_cidr_blocks": list{}, "prefix_list_ids": list{}, "security_groups": list{}, "self": false,
		})
	}
	return obj{"description": p.of["GroupDescription"], "vpc_id": p.of["VpcId"], "egress": out}
}

func parametersBody(p props, id string) obj {
	var all list
	settings := p.in("Properties").of
	for _, name := range sortedKeys(settings) {
		all = append(all, obj{"name": name, "value": settings[name]})
	}
	return obj{"name": p.named(id), "family": p.of["CacheParameterGroupFamily"], "description": p.of["Description"], "parameter": all}
}

func valkeyBody(p props, _ string) obj {
	name := strings.ToLower(p.module.stack.name)
	body := with(p.same("Engine", "EngineVersion", "Port", "AutomaticFailoverEnabled", "TransitEncryptionEnabled", "TransitEncryptionMode",
		"AtRestEncryptionEnabled", "SecurityGroupIds", "SnapshotRetentionLimit", "KmsKeyId", "NumNodeGroups", "ReplicasPerNodeGroup"), obj{
		"replication_group_id": name[:min(len(name), 40)], "description": p.of["ReplicationGroupDescription"], "node_type": p.of["CacheNodeType"],
		"multi_az_enabled":  p.of["MultiAZEnabled"],
		"subnet_group_name": p.of["CacheSubnetGroupName"], "parameter_group_name": p.of["CacheParameterGroupName"],
	})
	if p.module.stack.Resources["Valkey"].DeletionPolicy == "Snapshot" {
		body["final_snapshot_identifier"] = p.named("Last")
	}
	return body
}

func queueBody(p props, _ string) obj {
	body := obj{
		"name": p.of["QueueName"], "message_retention_seconds": p.of["MessageRetentionPeriod"], "kms_master_key_id": p.of["KmsMasterKeyId"],
		"sqs_managed_sse_enabled": p.of["SqsManagedSseEnabled"], "visibility_timeout_seconds": p.of["VisibilityTimeout"],
		"receive_wait_time_seconds": p.of["ReceiveMessageWaitTimeSeconds"],
	}
	if p.of["RedrivePolicy"] != nil {
		body["redrive_policy"] = p.text("RedrivePolicy")
	}
	return body
}

func seenBody(p props) obj {
	return p.in("VisibilityConfig").renamed(map[string]string{
		"CloudWatchMetricsEnabled": "cloudwatch_metrics_enabled", "SampledRequestsEnabled": "sampled_requests_enabled", "MetricName": "metric_name",
	})
}

// renamed copies properties under other names.
func (p props) renamed(names map[string]string) obj {
	out := obj{}
	for from, to := range names {
		out[to] = p.of[from]
	}
	return out
}

func floorBody(p props, _ string) obj {
	var rules list
	for _, r := range p.all("Rules") {
		rate := r.in("Statement").in("RateBasedStatement")
		count := rate.renamed(map[string]string{"Limit": "limit", "AggregateKeyType": "aggregate_key_type", "EvaluationWindowSec": "evaluation_window_sec"})
		for _, key := range rate.all("CustomKeys") {
			header := key.in("Header")
			text := header.all("TextTransformations")[0]
			count["custom_key"] = list{obj{"header": obj{"name": header.of["Name"], "text_transformation": text.same("Priority", "Type")}}}
		}
		rules = append(rules, with(r.same("Name", "Priority"), obj{
			"action":    obj{"block": obj{"custom_response": obj{"response_code": r.in("Action").in("Block").get("CustomResponse", "ResponseCode")}}},
			"statement": obj{"rate_based_statement": count}, "visibility_config": seenBody(r),
		}))
	}
	return with(p.same("Name", "Description", "Scope"), obj{"default_action": obj{"allow": obj{}}, "rule": rules, "visibility_config": seenBody(p)})
}

func planBody(p props, _ string) obj {
	body := obj{"name": p.of["UsagePlanName"], "description": p.of["Description"], "throttle_settings": p.in("Throttle").same("RateLimit", "BurstLimit")}
	for _, s := range p.all("ApiStages") {
		body["api_stages"] = list{obj{"api_id": s.of["ApiId"], "stage": s.of["Stage"]}}
	}
	return body
}

func sortedKeys(o obj) []string { return slices.Sorted(maps.Keys(o)) }
