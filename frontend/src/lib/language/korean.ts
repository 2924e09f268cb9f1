import type { Dictionary } from './english';

const number = new Intl.NumberFormat('ko');

export const korean: Dictionary = {
  name: '한국어',
  newConversation: '새 대화',
  conversations: '대화 목록',
  untitled: '제목 없음',
  today: '오늘',
  yesterday: '어제',
  lastWeek: '지난 7일',
  older: '이전',
  noConversations: '나눈 대화가 여기에 표시됩니다.',
  loadMore: '이전 대화 더 보기',
  rename: '이름 바꾸기',
  delete: '삭제',
  cancel: '취소',
  save: '저장',
  actionsFor: (title) => `‘${title}’ 대화 메뉴`,
  deleteTitle: '이 대화를 삭제할까요?',
  deleteText: (title) => `‘${title}’ 대화와 모든 갈래가 완전히 삭제됩니다.`,
  openSidebar: '대화 목록 열기',
  closeSidebar: '대화 목록 닫기',
  skipToComposer: '메시지 입력란으로 건너뛰기',
  greeting: (name) => (name ? `${name} 님, 무엇을 도와드릴까요?` : '무엇을 도와드릴까요?'),
  greetingDetail: (tenant) =>
    tenant ? `${tenant} 안에서만 이루어지는 비공개 대화입니다.` : '자체 서버에서 이루어지는 비공개 대화입니다.',
  placeholder: '메시지를 입력하세요…',
  messageField: '메시지',
  send: '보내기',
  stop: '중지',
  stopping: '중지하는 중…',
  sendHint: 'Enter로 보내기, Shift + Enter로 줄바꿈',
  tooLong: (over) => `${number.format(over)}자를 줄여야 보낼 수 있습니다`,
  charactersLeft: (left) => `${number.format(left)}자 남음`,
  waitForAnswer: '답변이 끝나거나 중지하면 보낼 수 있습니다.',
  you: '나',
  assistant: '어시스턴트',
  thinking: '첫 단어를 기다리는 중…',
  copy: '복사',
  copied: '복사됨',
  copyCode: '코드 복사',
  regenerate: '다시 답변',
  continue: '이어서 쓰기',
  edit: '수정',
  sendEdit: '새 갈래로 보내기',
  branch: (index, count) => `갈래 ${count}개 중 ${index}번째`,
  previousBranch: '이전 갈래',
  nextBranch: '다음 갈래',
  sending: '보내는 중…',
  willBeSent: '아직 보내지 못했습니다. 연결되면 자동으로 전송됩니다.',
  tryAgain: '다시 시도',
  discard: '버리기',
  takeBack: '입력란으로 되돌리기',
  usage: (prompt, cached, output) =>
    `프롬프트 ${number.format(prompt)}, 캐시 ${number.format(cached)} · ${number.format(output)}토큰`,
  promptOnly: (prompt, cached) => `프롬프트 ${number.format(prompt)}, 캐시 ${number.format(cached)}`,
  speed: (rate) => `초당 ${rate}토큰`,
  usagePrompt: '프롬프트 토큰',
  usageCached: '이 중 캐시에 있던 토큰',
  usageOutput: '작성한 토큰',
  usageQueued: '대기 시간',
  usagePrefill: '프롬프트 처리 시간',
  usageDecode: '답변 작성 시간',
  usageSaved: '캐시로 아낀 시간(약)',
  usageFreed: '반납한 메모리 블록',
  usageDetails: '이 답변의 상세 정보',
  seconds: (value) => `${value < 10 ? value.toFixed(2) : value.toFixed(1)}초`,
  stopped: (blocks) => (blocks === undefined ? '중지했습니다.' : `중지했습니다. 블록 ${number.format(blocks)}개 반납.`),
  interrupted: '엔진 또는 서버가 중단되어 답변이 끊겼습니다. 작성된 내용은 보관되었으며 이어서 쓸 수 있습니다.',
  lengthReached: '답변이 길이 제한에 도달했습니다. 이어서 쓸 수 있습니다.',
  tenantLimitReached: ({ limit }) =>
    (limit === null
      ? '테넌트의 메모리 한도에 이르러 답변이 여기에서 끝났습니다.'
      : `테넌트의 메모리 한도인 ${number.format(limit)}토큰에 이르러 답변이 여기에서 끝났습니다.`) +
    ' 새 대화를 시작하거나 관리자에게 한도를 늘려 달라고 요청하세요.',
  failed: '답변을 만들지 못했습니다.',
  connecting: '연결하는 중…',
  connected: '연결됨',
  offline: '오프라인입니다. 입력한 내용은 보관했다가 나중에 보냅니다.',
  reconnecting: (seconds) =>
    seconds > 0 ? `연결이 끊어졌습니다. ${seconds}초 후 다시 연결합니다.` : '연결이 끊어졌습니다. 다시 연결하는 중…',
  connectNow: '지금 연결',
  noModel: '현재 엔진에 연결할 수 없습니다. 대화는 볼 수 있지만 새 답변은 실패할 수 있습니다.',
  signedOutTitle: '로그아웃되었습니다',
  signedOutText: '계속하려면 다시 로그인하세요. 이 브라우저에 남은 초안은 그대로 있습니다.',
  signIn: '로그인',
  forbiddenTitle: '접근할 수 없습니다',
  forbiddenText: '더 이상 이 테넌트의 구성원이 아니거나 테넌트가 정지되었습니다. 관리자에게 문의하세요.',
  unsupportedTitle: '페이지가 오래되었습니다',
  unsupportedText: '서버가 새 프로토콜을 사용합니다. 페이지를 새로고침하세요.',
  reload: '새로고침',
  missingTitle: '대화를 찾을 수 없습니다',
  missingText: '삭제되었거나 다른 사람의 대화입니다.',
  loading: '불러오는 중…',
  jumpToLatest: '최신 메시지로 이동',
  showEarlier: '이전 메시지 보기',
  dismiss: '닫기',
  answerStarted: '답변을 작성하고 있습니다.',
  answerFinished: (start) => `답변이 끝났습니다. ${start}`,
  answerFailed: '답변에 실패했습니다.',
  tenant: '테넌트',
  members: '구성원과 키',
  admin: '관리',
  signOut: '로그아웃',
  language: '언어',
  account: '계정과 설정',
  errors: {
    invalid: '서버가 요청을 받아들이지 않았습니다.',
    not_found: '더 이상 존재하지 않습니다. 대화를 새로고침하세요.',
    conflict: '아직 답변을 작성하고 있습니다. 끝날 때까지 기다리거나 중지한 뒤 다시 시도하세요.',
    too_large: '너무 깁니다. 줄이거나 새 대화를 시작하세요.',
    rate_limited: '요청이 너무 많습니다. 잠시 후 다시 시도하세요.',
    budget_used: '이번 달 토큰을 모두 사용했습니다. 관리자에게 늘려 달라고 요청하거나 다음 달까지 기다리세요.',
    unavailable: '현재 엔진에 연결할 수 없습니다. 잠시 후 다시 시도하세요.',
    internal: '서버에서 문제가 발생했습니다. 다시 시도하고, 계속되면 관리자에게 알려 주세요.',
    offline: '연결되어 있지 않습니다. 연결되면 다시 시도하세요.',
  },
  failures: {
    kv_limit_exceeded: ({ needed, limit }) =>
      (needed === null || limit === null
        ? '이 대화에는 테넌트가 쓸 수 있는 것보다 많은 메모리가 필요합니다.'
        : `이 대화에는 ${number.format(needed)}토큰 분량의 메모리가 필요하지만 테넌트의 한도는 ${number.format(limit)}토큰입니다.`) +
      ' 메시지를 줄이거나 새 대화를 시작하거나 관리자에게 한도를 늘려 달라고 요청하세요.',
    context_length_exceeded: ({ needed, limit }) =>
      (needed === null || limit === null
        ? '대화가 모델이 읽을 수 있는 길이를 넘었습니다.'
        : `이 대화는 ${number.format(needed)}토큰이지만 모델은 ${number.format(limit)}토큰까지 읽을 수 있습니다.`) +
      ' 메시지를 줄이거나 새 대화를 시작하세요.',
    invalid_request: () =>
      '엔진이 이 메시지를 처리할 수 없습니다. 메시지를 고치거나 새 대화를 시작하고, 계속되면 관리자에게 알려 주세요.',
    queue_full: ({ waiting }) =>
      (waiting === null
        ? '테넌트의 대기 요청이 너무 많습니다.'
        : `테넌트의 대기 요청이 한도인 ${number.format(waiting)}개에 이르렀습니다.`) + ' 잠시 후 다시 시도하세요.',
    unknown_account: () =>
      '엔진이 현재 이 테넌트를 알지 못합니다. 몇 초 후 다시 시도하고, 계속되면 관리자에게 문의하세요.',
    model_error: () => '모델이 이 답변을 만들다 실패했습니다. 다시 시도하고, 계속되면 관리자에게 알려 주세요.',
    engine_stopping: () => '엔진이 종료되는 중이었습니다. 엔진이 돌아오면 다시 시도하세요.',
    unavailable: () => '엔진에 연결할 수 없었습니다. 잠시 후 다시 시도하세요.',
  },
  retryAfter: (seconds) => `${number.format(seconds)}초 후 다시 시도하세요.`,
};
