"""One made-up record of each JSON layout, with a mark in every field that may hold text of a person."""

import json

MARK = "CANARY"


def text(place: str) -> str:
    return f"{MARK} {place} of person@example.org"


LITELLM = {
    "id": "call-1",
    "trace_id": "trace-1",
    "call_type": "acompletion",
    "stream": True,
    "status": "success",
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "startTime": 1794956283.25,
    "endTime": 1794956285.25,
    "completionStartTime": 1794956283.5,
    "model": "m",
    "model_group": "g",
    "api_base": f"http://10.0.4.17/{MARK}",
    "metadata": {"user_api_key_team_id": f"{MARK}-team", "usage_object": {}, "requester_ip_address": f"10.0.0.1{MARK}"},
    "messages": [{"role": "user", "content": text("prompt") * 20}],
    "response": text("answer"),
    "error_str": text("error"),
    "error_information": {"error_message": text("error"), "error_class": text("class")},
    "model_parameters": {"max_tokens": 50, "user": text("user")},
}
SPEND = {
    "request_id": f"{MARK}-id",
    "call_type": "acompletion",
    "startTime": "2026-11-17 09:00:04.935",
    "endTime": "2026-11-17 09:00:05.935",
    "completionStartTime": "2026-11-17 09:00:05.000",
    "prompt_tokens": "100",
    "completion_tokens": "20",
    "model": "m",
    "metadata": json.dumps({"status": "success", "user_api_key_alias": MARK}),
    "team_id": f"{MARK}@example.org",
    "messages": text("prompt"),
    "response": text("answer"),
}
DIAG = {
    "category": "RequestResponse",
    "operationName": "ChatCompletions_Create",
    "correlationId": f"{MARK}-call",
    "callerIpAddress": f"10.1.1.1{MARK}",
    "durationMs": 900,
    "properties": {"requestTime": 639305172062751580, "responseTime": 639305172071251580, "objectId": MARK},
    "resultSignature": "200",
    "time": "2026-11-17T13:00:10.0251580Z",
}
APIM = {
    "TimeGenerated": "2026-11-17T13:10:17.5799443Z",
    "CorrelationId": f"{MARK}-call",
    "RequestId": f"{MARK}-id",
    "DeploymentName": "d",
    "ModelName": "m",
    "PromptTokens": 100,
    "CompletionTokens": 20,
    "SequenceNumber": 0,
    "RequestMessages": text("prompt") * 9,
    "ResponseMessages": text("answer"),
}
BEDROCK = {
    "schemaType": "ModelInvocationLog",
    "timestamp": "2026-11-17T09:15:02Z",
    "identity": {"arn": f"arn:aws:sts::111122223333:assumed-role/{MARK}/i-0ab"},
    "requestId": f"{MARK}-id",
    "operation": "Converse",
    "modelId": f"arn:aws:bedrock:eu-central-1:111122223333:provisioned-model/{MARK}",
    "input": {
        "inputBodyJson": {"messages": [{"role": "user", "content": [{"text": text("p")}]}]},
        "inputTokenCount": 100,
    },
    "output": {"outputBodyJson": {"stopReason": text("stop"), "metrics": {"latencyMs": 900}}, "outputTokenCount": 20},
}
VERTEX = {
    "logging_time": "2026-11-17 07:30:04.8975 UTC",
    "request_id": f"{MARK}-id",
    "model": "publishers/google/models/m",
    "api_method": "streamGenerateContent",
    "full_request": {"contents": [{"role": "user", "parts": [{"text": text("p")}]}], "labels": {"team": MARK}},
    "full_response": {"usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 20}, "candidates": [MARK]},
    "metadata": {"request_latency": 812.5},
}
SGLANG = {
    "request_parameters": '{"rid": "CANARY", "text": "CANARY %s", "sampling_params": {"max_new_tokens": 50}}'
    % ("x " * 200),
    "id": f"{MARK}-id",
    "finish_reason": {"type": "stop", "message": text("m")},
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "request_received_ts": 1794908411.25,
    "e2e_latency": 0.5,
}
LANGFUSE = {
    "id": f"{MARK}-id",
    "trace_id": f"{MARK}-trace",
    "type": "GENERATION",
    "environment": MARK,
    "start_time": "2026-11-17 18:20:06.125",
    "end_time": "2026-11-17 18:20:07.125",
    "level": "DEFAULT",
    "status_message": text("status"),
    "input": text("prompt") * 9,
    "output": text("answer"),
    "metadata": {"user": MARK},
    "provided_model_name": "m",
    "usage_details": {"input": 100, "output": 20, "total": 120},
}
OTEL = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "31d962bf40334518a705d19c432d0fc7",
                            "spanId": "0242ecd800ea5421",
                            "name": "chat m",
                            "startTimeUnixNano": "1794909907250000321",
                            "endTimeUnixNano": "1794909908250000321",
                            "status": {"message": text("status")},
                            "attributes": [
                                {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                                {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
                                {"key": "gen_ai.conversation.id", "value": {"stringValue": MARK}},
                                {"key": "gen_ai.prompt", "value": {"stringValue": text("prompt") * 9}},
                                {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "100"}},
                                {"key": "gen_ai.usage.output_tokens", "value": {"intValue": 20}},
                            ],
                        }
                    ]
                }
            ],
        }
    ]
}
BENCH = {
    "model_id": "m",
    "num_prompts": 1,
    "input_lens": [100],
    "output_lens": [20],
    "ttfts": [0.25],
    "start_times": [5.0],
    "latencies": [0.5],
    "errors": [""],
    "generated_texts": [text("answer")],
}
VLLM = (
    f"INFO 11-17 23:59:40 [logger.py:41] Received request {MARK}-id: prompt: '{text('prompt')}', params: "
    "SamplingParams(n=1, max_tokens=50), prompt_token_ids: [%s], lora_request: None.\n" % ", ".join(["7"] * 100)
)

RECORDS = {
    "litellm_standard_logging": LITELLM,
    "litellm_spendlogs": SPEND,
    "azure_diagnostics": DIAG,
    "azure_apim_llm": APIM,
    "bedrock_invocation": BEDROCK,
    "vertex_request_response": VERTEX,
    "sglang_request_metrics": SGLANG,
    "langfuse_observations": LANGFUSE,
    "otel_genai": OTEL,
    "vllm_bench_serve": BENCH,
}
